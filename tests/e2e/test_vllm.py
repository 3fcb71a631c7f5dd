"""What is judged is what is served: vLLM answers the documents, from the very outputs that are published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.e2e.conftest import DEMO, SMALL, Bench, sets


def test_the_gate_through_vllm(new_bench: Callable[[], Bench]) -> None:
    """FP8 weights, and 4-bit ones where the processor has AVX-512, load in vLLM and answer like the original."""
    bench = new_bench()
    four_bits = "avx512" in Path("/proc/cpuinfo").read_text()
    only = () if four_bits else ("variants.gptq=null",)
    done = bench.run(
        "build", str(DEMO), "--json", *sets(*SMALL, *only, "evaluation.backend=vllm-cpu", "serving.max_model_len=2048")
    )
    assert done.returncode == 0, done.stderr + done.stdout
    for row in json.loads(done.stdout)["releases"]:
        assert row["verdict"] == "PASS"
        assert abs(row["drop"]) < 0.3
        folder = Path(row["location"].removeprefix("file://"))
        for results in ("results.json", "original/results.json"):
            assert json.loads((folder / "evaluation" / results).read_text())["compute"] == {"server": "vllm"}


def test_a_vllm_that_is_not_there(new_bench: Callable[[], Bench]) -> None:
    done = new_bench().run("plan", str(DEMO), "--set", "evaluation.backend=vllm")
    assert done.returncode == 2
    assert "ENGINEWORKS_TOOLCHAIN_VLLM: not set; wanted system:PYTHON" in done.stderr
