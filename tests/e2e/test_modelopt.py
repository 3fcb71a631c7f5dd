"""ModelOpt's real exports, and the check that believes none of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.toolchains import find_toolchain, make_ready
from builders.trtllm.check import findings_on
from builders.trtllm.config import Wanted
from builders.trtllm.routes import ALGORITHMS
from builders.worker_process import WorkerJob, run_worker_process
from recipes.errors import StageFailed
from tests.tiny_models import LLAMA3_ROPE, Family, read_safetensors, write_tiny

WORKER = Path(__file__).parents[2] / "builders" / "workers" / "modelopt_convert.py"
Export = Callable[..., Path]
Tensors = dict[str, NDArray[Any]]
SCALES = ("scaling_factor", "scaling_factor_2", "per_channel_scale")


@pytest.fixture(scope="module")
def export(tool_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Run the worker on a checkpoint, and return what it wrote."""
    toolchain = find_toolchain("modelopt", tool_home)
    make_ready(toolchain, lambda _message: None)

    def run(
        source: Path,
        scheme: str,
        *,
        tp: int = 1,
        pp: int = 1,
        kv_cache: str | None = None,
        data: bool = True,
        **more: Any,
    ) -> Path:
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
        if (scheme in ("none", "fp8", "int8-weight-only") and not kv_cache) or not data:
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


def whole(source: Path, output: Path, scheme: str, *, tp: int = 1, pp: int = 1) -> list[Tensors]:
    """Every rank's tensors, once files, config and scales are as they should be; read without the code under test."""
    config = json.loads((output / "config.json").read_text())
    original = json.loads((source / "config.json").read_text())
    assert {path.name for path in output.glob("*.safetensors")} == {f"rank{n}.safetensors" for n in range(tp * pp)}
    assert config["mapping"] == {"world_size": tp * pp, "tp_size": tp, "pp_size": pp}
    assert config["quantization"]["quant_algo"] == ALGORITHMS[scheme]
    assert config["rotary_base"] == original.get("rope_theta", original.get("rope_parameters", {}).get("rope_theta"))
    assert config.get("qwen_type") == {"qwen2": "qwen2", "qwen3": "qwen3"}.get(original["model_type"])
    ranks = [read_safetensors(output / f"rank{n}.safetensors") for n in range(tp * pp)]
    for tensors in ranks:
        scales = {name: values for name, values in tensors.items() if name.endswith(SCALES)}
        assert bool(scales) == (scheme != "none")
        for name, values in scales.items():
            assert np.isfinite(values).all(), name
            assert (values > 0).all(), name
    return ranks


def qkv_of(source: Path, part: int, parts: int) -> NDArray[np.float32]:
    """What one rank's first layer must compute: its heads' rows of q, then of k, then of v."""
    tensors = read_safetensors(source / "model.safetensors")
    weights = [tensors[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkv"]
    return np.concatenate([weight.reshape(parts, -1, weight.shape[1])[part] for weight in weights])


def unpacked(tensors: Tensors, place: str) -> NDArray[np.float32]:
    """A stored weight as the matrix it stands for, in the original's scale of inputs."""
    weight, scale = tensors[f"{place}.weight"], tensors.get(f"{place}.per_channel_scale")
    scale = tensors.get(f"{place}.weights_scaling_factor", scale)
    if scale is None:
        return weight
    if scale.ndim == 2:  # four bits: two rows in one, the lower half first
        halves = [((weight.view("u1") >> shift & 15) ^ 8).astype(int) - 8 for shift in (0, 4)]
        weight = np.stack(halves, 1).reshape(-1, weight.shape[1])
        scale = scale.repeat(weight.shape[1] // scale.shape[1], 1)
    return weight * scale.reshape(scale.shape[0], -1) * tensors.get(f"{place}.prequant_scaling_factor", 1.0)


def off(seen: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    return float(np.linalg.norm(seen - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_every_family_and_split_is_exported_whole(export: Export, tmp_path: Path, family: Family, tp: int) -> None:
    source = write_tiny(tmp_path / "source", family, convention="v5", tied=family == "qwen2")
    output = export(source, "fp8-static", tp=tp)
    assert findings(source, output, "fp8-static", tp) == []
    for rank, tensors in enumerate(whole(source, output, "fp8-static", tp=tp)):
        assert off(unpacked(tensors, "transformer.layers.0.attention.qkv"), qkv_of(source, rank, tp)) < 0.05


@pytest.mark.parametrize("scheme", ["none", "fp8", "int8", "int8-weight-only", "awq", "w4a8-awq"])
def test_every_scheme(export: Export, tmp_path: Path, scheme: str) -> None:
    source = write_tiny(tmp_path / "source", "llama")
    output = export(source, scheme, tp=2)
    assert findings(source, output, scheme, 2) == []
    for rank, tensors in enumerate(whole(source, output, scheme, tp=2)):
        error = off(unpacked(tensors, "transformer.layers.0.attention.qkv"), qkv_of(source, rank, 2))
        assert error < (0.2 if "awq" in scheme else 0.05)


def test_a_padded_vocabulary_is_taken_for_what_it_is(export: Export, tmp_path: Path) -> None:
    """AWQ's kernels want output in 64s: ModelOpt fills the tables up."""
    source = write_tiny(tmp_path / "source", "llama", vocab=330)
    output = export(source, "awq")
    assert json.loads((output / "config.json").read_text())["vocab_size"] == 384
    assert findings(source, output, "awq", 1) == []


def test_heads_wider_than_the_hidden_size_says_and_their_norms(export: Export, tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", "qwen3", head_dim=128)
    output = export(source, "none", tp=2)
    original = read_safetensors(source / "model.safetensors")
    for rank, tensors in enumerate(whole(source, output, "none", tp=2)):
        assert np.array_equal(tensors["transformer.layers.0.attention.qkv.weight"], qkv_of(source, rank, 2))
        for name in "qk":
            ours = tensors[f"transformer.layers.0.attention.{name}_layernorm.weight"]
            assert np.array_equal(ours, original[f"model.layers.0.self_attn.{name}_norm.weight"])
    assert json.loads((output / "config.json").read_text())["head_size"] == 128


def test_a_float16_source_is_not_rounded_to_bfloat16(export: Export, tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", "llama", dtype="float16")
    (tensors,) = whole(source, export(source, "none", dtype="float16"), "none")
    assert np.array_equal(tensors["transformer.layers.0.attention.qkv.weight"], qkv_of(source, 0, 1))


def test_awq_in_groups_of_64_twice_the_same(export: Export, tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", "llama")
    first, second = (export(source, "awq", tp=2, group_size=64) for _ in range(2))
    assert json.loads((first / "config.json").read_text())["quantization"]["group_size"] == 64
    assert whole(source, first, "awq", tp=2)[0]["transformer.layers.0.mlp.fc.weights_scaling_factor"].shape == (256, 4)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("scheme", "asked", "said"),
    [
        ("awq", {"group_size": 96}, "group_size: 96 does not divide 256 inputs"),
        ("w4a8-awq", {"tp": 4}, "group_size: 128 does not divide 256 inputs over 4 ranks"),
        ("fp8-static", {"tp": 3}, "tensor_parallel: 3 does not divide the 4 attention heads"),
        ("none", {"pp": 3}, "pipeline_parallel: 3 does not divide the 2 layers"),
        ("int8", {"data": False}, "scheme int8 observes activations"),
        ("fp8", {"data": False, "kv_cache": "fp8"}, "kv_cache fp8 observes activations"),
        ("gptq", {}, "'gptq' is none of ModelOpt's"),
    ],
)
def test_refused_before_the_model_is_loaded(
    export: Export, tmp_path: Path, scheme: str, asked: dict[str, Any], said: str
) -> None:
    source = write_tiny(tmp_path / "source", "llama")
    (source / "model.safetensors").unlink()
    with pytest.raises(StageFailed, match=said) as failed:
        export(source, scheme, **asked)
    assert failed.value.cause == "bad_input"


def test_fp8_cache_pipeline_ranks_and_scaled_rope(export: Export, tmp_path: Path) -> None:
    """A checkpoint of transformers 5 with Llama 3's rope: base and scaling come through."""
    source = write_tiny(tmp_path / "source", "llama", convention="v5", rope_scaling=LLAMA3_ROPE, shards=2)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    output = export(source, "fp8-static", pp=2, kv_cache="fp8")
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    whole(source, output, "fp8-static", pp=2)
    assert findings(source, output, "fp8-static", 1, pp=2, kv_cache="fp8") == []
    config = json.loads((output / "config.json").read_text())
    assert config["quantization"]["kv_cache_quant_algo"] == "FP8"
    assert config["rotary_base"] == 500000.0
    assert config["rotary_scaling"] == LLAMA3_ROPE
