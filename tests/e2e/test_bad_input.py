"""What users feed it by mistake, through the real workers and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import WorkerJob, run_worker_process
from recipes.errors import StageFailed
from tests.flows.test_cli import engineworks
from tests.tiny_models import write_tiny

WORKERS = Path(__file__).parents[2] / "builders" / "workers"
Run = Callable[..., Path]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bad") / "source")


@pytest.fixture(scope="module")
def run(tool_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    toolchain = find_toolchain("llmcompressor", tool_home)
    make_ready(toolchain, lambda _message: None)

    def work(script: str, params: dict[str, Any], **inputs: Path) -> Path:
        place = tmp_path_factory.mktemp("work")
        for name in ("output", "scratch"):
            (place / name).mkdir()
        run_worker_process(
            WorkerJob(
                stage="x", python=toolchain.python, script=WORKERS / script, params=params, inputs=inputs,
                output=place / "output", scratch=place / "scratch", work=place, threads=2, timeout_s=300,
                on_event=lambda _event: None,
            )
        )  # fmt: skip
        return place / "output"

    return work


def calibrate(run: Run, source: Path, folder: Path, text: bytes, kind: str = "text", **more: Any) -> Path:
    folder.mkdir()
    (folder / "data").write_bytes(text)
    params = {
        "data": {"kind": kind, "file": "data", "field": "text"}, "samples": 4, "sequence_length": 32, "seed": 0,
        "chat_template": False,
    } | more  # fmt: skip
    return run("calibration.py", params, checkpoint=source, data=folder)


@pytest.mark.parametrize(
    ("text", "kind", "more", "says"),
    [
        (b"short", "text", {}, "calibration.samples: 4 asked for, the data holds 0 of 32 tokens"),
        (b"", "text", {}, "the data holds 0"),
        (b"some words " * 8, "text", {"samples": 99}, "99 asked for, the data holds 2"),
        ("Käse".encode("latin-1") * 99, "text", {}, "data is not UTF-8 (byte 1)"),
        (b'{"text": "a"}\n{"text": \n', "jsonl", {}, "data:2 is not JSON"),
        (b'{"body": "a"}\n', "jsonl", {}, "no 'text' in the data; fields there: body"),
        (b'{"text": 7}\n', "jsonl", {}, "holds a int, wanted text"),
        (b"not parquet", "parquet", {}, "data is not a Parquet file"),
        (b"x" * 999, "text", {"chat_template": True}, "the checkpoint has no chat template"),
    ],
)
def test_calibration_text_that_will_not_do(
    run: Run, source: Path, tmp_path: Path, text: bytes, kind: str, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(StageFailed, match="x: ") as failed:
        calibrate(run, source, tmp_path / "data", text, kind, **more)
    assert says in str(failed.value)
    assert failed.value.cause == "bad_input"


def test_long_and_empty_lines_will_do(run: Run, source: Path, tmp_path: Path) -> None:
    text = b"\n\n\n" + b"a very long paragraph " * 200 + b"\n\n\n\n" + b"x\n\n" * 50
    lines = (calibrate(run, source, tmp_path / "data", text) / "calibration.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["input_ids"]) for line in lines] == [32] * 4


def test_a_keep_that_keeps_nothing_shard_by_shard(run: Run, source: Path) -> None:
    for keep in (["model.layers.7.mlp.up_proj"], ["re:.*down_prj"]):
        with pytest.raises(StageFailed, match="matches no module"):
            run("llmcompressor_stream.py", {"scheme": "fp8", "options": {}, "keep": keep}, checkpoint=source)
    kept = run(
        "llmcompressor_stream.py", {"scheme": "fp8", "options": {}, "keep": ["re:.*down_proj"]}, checkpoint=source
    )
    assert "re:.*down_proj" in json.loads((kept / "config.json").read_text())["quantization_config"]["ignore"]


@pytest.mark.parametrize(
    ("keep", "says"),
    [
        (["lm_head", "re:.*down_prj"], "keep: 're:.*down_prj' matches no module"),
        (["model.layers.0"], "'model.layers.0' is a block, not a layer"),
    ],
)
def test_a_keep_that_keeps_nothing(run: Run, source: Path, tmp_path: Path, keep: list[str], says: str) -> None:
    calibration = calibrate(run, source, tmp_path / "data", b"some words to see " * 50)
    params = {"scheme": "fp8-static", "options": {}, "keep": keep}
    with pytest.raises(StageFailed, match="x: ") as failed:
        run("llmcompressor_quantize.py", params, checkpoint=source, calibration=calibration)
    assert says in str(failed.value)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:12] + bytes([data[12] ^ 255]) + data[13:], "model.safetensors"),
        (lambda data: data[:-500], "model.safetensors"),
        (lambda _data: b"", "model.safetensors"),
    ],
)
def test_a_corrupted_shard_is_refused_by_the_plan(tmp_path: Path, damage: Callable[[bytes], bytes], says: str) -> None:
    source = write_tiny(tmp_path / "source")
    weights = source / "model.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"model: m\nsource: path:{source}\nvariants: {{a: {{scheme: fp8, margin: 0.5}}}}\n")
    done = engineworks("plan", str(recipe), home=tmp_path / "home")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_quantized_source_is_refused_by_the_plan(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", quantization_config={"quant_method": "awq"})
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"model: m\nsource: path:{source}\nvariants: {{a: {{scheme: fp8, margin: 0.5}}}}\n")
    done = engineworks("plan", str(recipe), home=tmp_path / "home")
    assert done.returncode == 2
    assert "already quantized (awq)" in done.stderr
