"""GGUF from recipe to release: converted and quantized by llama.cpp, and proven by its answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.integrity.gguf import findings_on
from tests.e2e.conftest import DEMO, Bench, sets

RELEASES = (
    *(f"variants.{name}=null" for name in ("fp8", "int8", "gptq", "awq")),
    "variants.q4={scheme: gguf}", "variants.q8={scheme: gguf, type: q8_0}",
)  # fmt: skip
Built = tuple[Bench, dict[str, dict[str, Any]]]
ASK = """
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=256, verbose=False)
print(model("The capital of France is", max_tokens=6, temperature=0)["choices"][0]["text"])
"""


@pytest.fixture(scope="module")
def built(new_bench: Callable[[], Bench]) -> Built:
    bench = new_bench()
    done = bench.run("build", str(DEMO), "--json", *sets(*RELEASES))
    assert done.returncode == 0, done.stderr + done.stdout
    return bench, {row["line"]: row for row in json.loads(done.stdout)["releases"]}


def weights(built: Built, variant: str) -> Path:
    return Path(built[1][variant]["location"].removeprefix("file://")) / "weights"


@pytest.mark.parametrize(("variant", "name", "most"), [("q4", "q4_k_m", 110e6), ("q8", "q8_0", 150e6)])
def test_a_release_is_one_file_that_answers(built: Built, variant: str, name: str, most: float) -> None:
    file = weights(built, variant) / f"smollm2-135m-instruct.{name}.gguf"
    assert file.stat().st_size < most
    (python,) = (built[0].home / "envs").glob("llamacpp-*/bin/python")
    done = subprocess.run([str(python), "-c", ASK, str(file)], capture_output=True, text=True, check=True)
    assert "Paris" in done.stdout
    assert built[1][variant]["verdict"] == "NOT RUN"
    assert "llama-server" in (weights(built, variant).parent / "serve" / "llama.sh").read_text()


def test_every_prompt_became_the_source_s_tokens(built: Built) -> None:
    answers = json.loads((weights(built, "q4") / "answers.json").read_text())
    assert all(answer["same_tokens"] for answer in answers.values())


def test_another_type_than_asked_for_is_found(built: Built) -> None:
    source = next(
        path.parent
        for path in (built[0].home / "store" / "artifacts").rglob("config.json")
        if (path.parent / "model.safetensors").is_file()
    )
    assert list(findings_on(source, weights(built, "q4"), "q4_k_m")) == []
    said = "\n".join(str(finding) for finding in findings_on(source, weights(built, "q4"), "f16"))
    assert "tensors: blk.0" in said
    assert "wanted F16" in said
