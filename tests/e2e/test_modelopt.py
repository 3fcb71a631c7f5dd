"""ModelOpt's real exports, and the check that believes none of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.toolchains import find_toolchain, make_ready
from builders.trtllm.check import findings_on
from builders.trtllm.config import Wanted
from builders.trtllm.routes import ALGORITHMS
from builders.worker_process import WorkerJob, run_worker_process
from tests.tiny_models import LLAMA3_ROPE, Family, write_tiny

WORKER = Path(__file__).parents[2] / "builders" / "workers" / "modelopt_convert.py"
Export = Callable[..., Path]


@pytest.fixture(scope="module")
def export(tool_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Run the worker on a checkpoint, and return what it wrote."""
    toolchain = find_toolchain("modelopt", tool_home)
    make_ready(toolchain, lambda _message: None)

    def run(source: Path, scheme: str, *, tp: int = 1, pp: int = 1, kv_cache: str | None = None, **more: Any) -> Path:
        work = tmp_path_factory.mktemp("convert")
        output, scratch, calibration = work / "data", work / "scratch", work / "calibration"
        for folder in (output, scratch, calibration):
            folder.mkdir()
        rows = [json.dumps({"text": "", "input_ids": [(7 * n + k) % 256 for k in range(32)]}) for n in range(4)]
        (calibration / "calibration.jsonl").write_text("\n".join(rows))
        params = {
            "scheme": scheme, "kv_cache": kv_cache, "dtype": "bfloat16", "tensor_parallel": tp, "pipeline_parallel": pp,
        } | more  # fmt: skip
        inputs = {"checkpoint": source, "calibration": calibration}
        if scheme in ("none", "fp8", "int8-weight-only") and not kv_cache:
            del inputs["calibration"]
        run_worker_process(
            WorkerJob(
                stage="convert:tiny", python=toolchain.python, script=WORKER, params=params, inputs=inputs,
                output=output, scratch=scratch, work=work, threads=2, timeout_s=300, on_event=lambda _event: None,
            )
        )  # fmt: skip
        return output

    return run


def findings(source: Path, output: Path, scheme: str, tp: int, pp: int = 1, kv_cache: str | None = None) -> list[str]:
    wanted = Wanted(quant_algo=ALGORITHMS[scheme], kv_cache=kv_cache, tensor_parallel=tp, pipeline_parallel=pp)
    return [str(finding) for finding in findings_on(source, output, wanted)]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_every_family_and_split_is_exported_whole(export: Export, tmp_path: Path, family: Family, tp: int) -> None:
    source = write_tiny(tmp_path / "source", family, convention="v5", tied=family == "qwen2")
    output = export(source, "fp8-static", tp=tp)
    assert findings(source, output, "fp8-static", tp) == []
    assert len(list(output.glob("rank*.safetensors"))) == tp


@pytest.mark.parametrize("scheme", ["none", "fp8", "int8", "int8-weight-only", "awq", "w4a8-awq"])
def test_every_scheme(export: Export, tmp_path: Path, scheme: str) -> None:
    source = write_tiny(tmp_path / "source", "llama")
    output = export(source, scheme, tp=2)
    assert findings(source, output, scheme, 2) == []
    config = json.loads((output / "config.json").read_text())
    assert config["quantization"]["quant_algo"] == ALGORITHMS[scheme]


def test_fp8_cache_pipeline_ranks_and_scaled_rope(export: Export, tmp_path: Path) -> None:
    """A checkpoint of transformers 5 with Llama 3's rope: base and scaling come through."""
    source = write_tiny(tmp_path / "source", "llama", convention="v5", rope_scaling=LLAMA3_ROPE, shards=2)
    output = export(source, "fp8-static", pp=2, kv_cache="fp8")
    assert findings(source, output, "fp8-static", 1, pp=2, kv_cache="fp8") == []
    config = json.loads((output / "config.json").read_text())
    assert config["rotary_base"] == 500000.0
    assert config["rotary_scaling"]["factor"] == 8.0
