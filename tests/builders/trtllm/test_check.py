"""The check of TensorRT-LLM checkpoints: clean ones pass, and every known way to be wrong is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.rope import rope_of
from builders.tensor_values import widen
from builders.trtllm.check import findings_on
from builders.trtllm.config import Wanted
from tests.builders.trtllm.checkpoints import write_checkpoint
from tests.tiny_models import LLAMA3_ROPE, Family, read_safetensors, write_safetensors, write_tiny


def found(source: Path, output: Path, tp: int = 1, pp: int = 1, **wanted: Any) -> str:
    asked = Wanted(**{"quant_algo": None, "kv_cache": None, "tensor_parallel": tp, "pipeline_parallel": pp, **wanted})
    return "\n".join(str(finding) for finding in findings_on(source, output, asked))


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_nothing_is_found_in_a_right_one(tmp_path: Path, family: Family, tp: int, pp: int) -> None:
    source = write_tiny(tmp_path / "source", family, rope_scaling=LLAMA3_ROPE, convention="v5")
    assert found(source, write_checkpoint(source, tmp_path / "output", tp, pp), tp, pp) == ""


def edit_config(output: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((output / "config.json").read_text())
    change(config)
    (output / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("rotary_base"), "config: rotary_base: missing; wanted 500000.0"),
        (lambda c: c.update(rotary_base=10000.0), "rotary_base: 10000.0; wanted 500000.0"),
        (lambda c: c.update(rotary_scaling=None), "rotary_scaling: missing"),
        (lambda c: c["rotary_scaling"].update(factor=4.0), "rotary_scaling.factor: 4.0; wanted 8.0"),
        (lambda c: c.pop("architecture"), "architecture: missing"),
        (lambda c: c.update(architecture="GPTForCausalLM"), "architecture: 'GPTForCausalLM'"),
        (lambda c: c["mapping"].update(world_size=2), "mapping.world_size: 2; wanted 1"),
        (lambda c: c["quantization"].update(quant_algo="FP8"), "quantization.quant_algo: 'FP8'"),
        (lambda c: c["quantization"].update(kv_cache_quant_algo="FP8"), "kv_cache_quant_algo: 'FP8'"),
        (lambda c: c.update(num_key_value_heads=4), "num_key_value_heads: 4; wanted 2"),
        (lambda c: c.update(vocab_size=321), "vocab_size: 321; wanted 320"),
        (lambda c: c.update(norm_epsilon=1e-5), "norm_epsilon: 1e-05"),
    ],
)
def test_a_wrong_config(tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str) -> None:
    source = write_tiny(tmp_path / "source", rope_scaling=LLAMA3_ROPE)
    output = write_checkpoint(source, tmp_path / "output")
    edit_config(output, change)
    assert says in found(source, output)


def test_qwen_must_say_which(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", "qwen3")
    output = write_checkpoint(source, tmp_path / "output")
    edit_config(output, lambda config: config.pop("qwen_type"))
    assert "qwen_type: None; wanted 'qwen3'" in found(source, output)


def test_a_hugging_face_directory_is_recognised(tmp_path: Path) -> None:
    """GitHub issue 6360."""
    source = write_tiny(tmp_path / "source")
    assert found(source, source) == (
        "format: config.json: a Hugging Face checkpoint; wanted a TensorRT-LLM one: trtllm-build takes no other"
    )


def test_ranks_must_be_those_of_the_mapping(tmp_path: Path) -> None:
    """GitHub issue 1992: as many processes as tensor x pipeline ranks."""
    source = write_tiny(tmp_path / "source")
    output = write_checkpoint(source, tmp_path / "output", tp=2)
    (output / "rank1.safetensors").unlink()
    assert "ranks: files: 1 rank files (rank0.safetensors); wanted 2" in found(source, output, tp=2)


def test_a_cut_off_rank(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_checkpoint(source, tmp_path / "output")
    data = (output / "rank0.safetensors").read_bytes()
    (output / "rank0.safetensors").write_bytes(data[:-100])
    assert "files: rank0.safetensors:" in found(source, output)


def damage(output: Path, change: Callable[[dict[str, Any]], None], rank: int = 0) -> None:
    tensors = read_safetensors(output / f"rank{rank}.safetensors")
    change(tensors)
    write_safetensors(output / f"rank{rank}.safetensors", tensors)


QKV = "transformer.layers.1.attention.qkv"
FIRST = "transformer.layers.0"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop(f"{QKV}.weight"), f"rank0 {QKV}.weight: missing; wanted shape [256, 256]"),
        (lambda t: t.update({f"{QKV}.weight": t[f"{QKV}.weight"][:-8]}), "shape [248, 256]; wanted [256, 256]"),
        (lambda t: t.pop(f"{QKV}.bias"), f"rank0 {QKV}.bias: missing"),
        (lambda t: t.pop("lm_head.weight"), "rank0 lm_head.weight: missing; wanted shape [160, 256]"),
        (lambda t: t.update({"transformer.layers.2.mlp.fc.weight": np.ones((1, 1))}), "a layer too many"),
        (lambda t: t.update({f"{QKV}.weights_scaling_factor": np.array([np.nan])}), "NaN or infinite"),
        (lambda t: t.update({f"{QKV}.weights_scaling_factor": np.array([0.0])}), "values over zero"),
    ],
)
def test_a_wrong_tensor(tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str) -> None:
    source = write_tiny(tmp_path / "source", "qwen2")
    output = write_checkpoint(source, tmp_path / "output", tp=2)
    damage(output, change)
    assert says in found(source, output, tp=2)


def test_ranks_in_the_wrong_order(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_checkpoint(source, tmp_path / "output", tp=2)
    (output / "rank0.safetensors").rename(output / "x")
    (output / "rank1.safetensors").rename(output / "rank0.safetensors")
    (output / "x").rename(output / "rank1.safetensors")
    said = found(source, output, tp=2)
    assert f"shares: rank0 {FIRST}.attention.qkv.weight" in said
    assert f"shares: rank1 {FIRST}.mlp.proj.weight" in said


def test_gate_and_up_exchanged(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_checkpoint(source, tmp_path / "output")

    def exchange(tensors: dict[str, Any]) -> None:
        one, other = f"{FIRST}.mlp.fc.weight", f"{FIRST}.mlp.gate.weight"
        tensors[one], tensors[other] = tensors[other], tensors[one]

    damage(output, exchange)
    assert f"shares: rank0 {FIRST}.mlp.fc.weight" in found(source, output)


def test_unquantized_where_a_type_was_promised(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_checkpoint(source, tmp_path / "output")
    edit_config(output, lambda config: config["quantization"].update(quant_algo="FP8", kv_cache_quant_algo="FP8"))
    said = found(source, output, quant_algo="FP8", kv_cache="fp8")
    assert "type BF16; wanted F8_E4M3" in said
    assert f"{FIRST}.attention.qkv.activation_scaling_factor: missing" in said
    assert f"{FIRST}.attention.kv_cache_scaling_factor: missing" in said


def test_a_format_not_known_here_is_said_to_be_so(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_checkpoint(source, tmp_path / "output")
    edit_config(output, lambda config: config["quantization"].update(quant_algo="W4A16_GPTQ"))
    said = found(source, output, quant_algo="W4A16_GPTQ")
    assert "whose layout is not known here" in said


@given(st.integers(0, 255))
def test_fp8_values(byte: int) -> None:
    """Sign, exponent and mantissa by the definition, one value at a time."""
    value = float(widen(np.array([byte], np.uint8), "F8_E4M3")[0])
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    if byte & 127 == 127:
        assert np.isnan(value)
        return
    size = mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    assert value == (-size if sign else size)


def test_rope_in_both_conventions() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0}
    assert rope_of({"rope_theta": 1e6, "rope_scaling": scaling}) == (1e6, scaling)
    assert rope_of({"rope_parameters": {"rope_theta": 1e6, **scaling}}) == (1e6, scaling)
    assert rope_of({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}) == (1e6, {})
    assert rope_of({"rope_scaling": {"type": "linear", "factor": 2.0}})[1] == {"rope_type": "linear", "factor": 2.0}
    assert rope_of({}) == (10000.0, {})
