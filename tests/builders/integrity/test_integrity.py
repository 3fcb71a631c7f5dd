"""The check of quantized checkpoints: right ones pass in every format, and each way to be wrong is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.integrity.check import findings_on
from builders.integrity.formats import rows_of, stored
from builders.tensor_values import TensorFiles
from recipes.variants import Awq, Gptq, Int8, Variant
from tests.builders.integrity.outputs import FORMATS, GROUP, damage, edit, write_output
from tests.tiny_models import Family, write_tensors, write_tiny

VARIANTS: dict[str, Variant] = {
    "packed": Gptq(group_size=GROUP),
    "awq": Awq(group_size=GROUP, tool="autoawq", symmetric=False),
    "gptq": Gptq(group_size=GROUP, tool="gptqmodel"),
    "modelopt": Awq(group_size=GROUP, tool="modelopt"),
    "int8": Int8(smoothing_strength=None),
}
UP = "model.layers.1.mlp.up_proj"
DOWN = "model.layers.0.mlp.down_proj"


def found(source: Path, output: Path, variant: Variant) -> str:
    return "\n".join(str(finding) for finding in findings_on(source, output, variant))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_nothing_is_found_in_a_right_one(tmp_path: Path, family: Family, form: str) -> None:
    source = write_tiny(tmp_path / "source", family)
    assert found(source, write_output(source, tmp_path / "output", form), VARIANTS[form]) == ""


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), form=st.sampled_from(sorted(FORMATS)))
def test_every_format_is_read_back_as_it_was_packed(seed: int, form: str) -> None:
    """Numbers and scales chosen so that rounding costs nothing: the very same matrix comes back."""
    import tempfile

    rng = np.random.default_rng(seed)
    numbers = rng.integers(-7, 8, (16, 128)).astype(np.float32)
    numbers[:, ::GROUP] = 7  # so that the largest of each group gives the scale back
    weight = numbers * rng.choice([0.5, 1.0, 2.0], (16, 1)).astype(np.float32)
    if form == "int8":
        weight[:, 0] = 127 * weight[:, 0] / 7 / 16
    with tempfile.TemporaryDirectory() as place:
        write_tensors(Path(place) / "model.safetensors", FORMATS[form]("layer", weight))
        tensors = TensorFiles(Path(place))
        layer = stored(tensors, "layer")
        assert layer is not None
        rows = np.array([15, 0, 7, 8])
        read = rows_of(tensors, layer, rows)
    assert read is not None
    limit = 0.5 / 7 if form == "int8" else 1e-6
    assert np.abs(read - weight[rows]).max() <= limit * np.abs(weight).max()


def swap(one: str, other: str) -> Any:
    def change(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith(f"{one}.")]:
            twin = name.replace(one, other)
            tensors[name], tensors[twin] = tensors[twin], tensors[name]

    return change


def scaled(name: str, factor: float) -> Any:
    return lambda tensors: tensors.update({name: tensors[name] * np.float32(factor)})


@pytest.mark.parametrize(
    ("form", "change", "says"),
    [
        ("packed", lambda t: t.pop(f"{UP}.weight_packed"), f"tensors: {UP}.weight: missing"),
        ("packed", lambda t: t.update({"model.layers.9.x.weight": t["model.norm.weight"]}), "not in the source"),
        ("packed", lambda t: t.update({f"{UP}.weight_scale": t[f"{UP}.weight_scale"][:, :2]}), "in groups of 64"),
        ("packed", scaled(f"{UP}.weight_scale", np.nan), "NaN or infinite"),
        ("packed", scaled(f"{UP}.weight_scale", 0), "zeros; wanted no zero"),
        ("packed", scaled(f"{UP}.weight_scale", 2), f"values: {UP}: 1"),
        ("packed", lambda t: t[f"{UP}.weight_scale"].fill(0.01), "all 0.01; wanted scales of its rows"),
        ("packed", swap(UP, UP.replace("up", "gate")), f"values: {UP}: 1"),
        ("packed", lambda t: t.update({"model.norm.weight": t["model.norm.weight"][:-1]}), "shapes: model.norm.weight"),
        ("awq", swap(DOWN, "model.layers.1.mlp.down_proj"), f"values: {DOWN}"),
        ("gptq", lambda t: t[f"{UP}.qweight"].__imul__(3), f"values: {UP}"),
        ("gptq", lambda t: t[f"{UP}.g_idx"].__iadd__(1), f"values: {UP}: can't be read back"),
        ("modelopt", lambda t: t[f"{UP}.weight"].__ixor__(255), f"values: {UP}"),
        ("int8", scaled(f"{UP}.weight_scale", 1.5), f"values: {UP}: 0.50"),
    ],
)  # fmt: skip
def test_damaged_weights_are_found(tmp_path: Path, form: str, change: Any, says: str) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", form)
    damage(output, change)
    assert says in found(source, output, VARIANTS[form])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("quantization_config"), "config: quantization_config: none"),
        (lambda c: c.update(vocab_size=321), "vocab_size: 321; wanted 320"),
        (lambda c: c.update(rope_theta=10000.0), "config: rope: base 10000; wanted base 500000"),
        (lambda c: c.update(torch_dtype="float32"), "dtype: float32; wanted bfloat16"),
        (lambda c: c.update(tie_word_embeddings=True), "tie_word_embeddings: True; wanted False"),
        (lambda c: c.update(eos_token_id=1), "eos_token_id: 1; wanted 319"),
    ],
)
def test_a_changed_config_is_found(tmp_path: Path, change: Any, says: str) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "packed")
    edit(output, change)
    assert says in found(source, output, VARIANTS["packed"])


def test_a_layer_left_alone_must_be_named(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "int8")

    def unquantize(tensors: dict[str, Any]) -> None:
        del tensors[f"{UP}.weight_scale"]
        tensors[f"{UP}.weight"] = tensors[f"{UP}.weight"].astype(np.float32)

    damage(output, unquantize)
    variant = Int8(keep=("lm_head", UP))
    assert f"{UP}.weight: left unquantized; wanted quantized, or named" in found(source, output, variant)
    edit(output, lambda config: config["quantization_config"].update(ignore=["lm_head", f"re:.*{UP[-7:]}"]))
    assert "left unquantized" not in found(source, output, variant)


def test_bytes_must_fall(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "int8")
    assert "bytes: weights" in found(source, output, Gptq(group_size=GROUP))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: (f / "tokenizer.json").unlink(), "sidecars: tokenizer.json: missing"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "sidecars: tokenizer.json: changed"),
        (lambda f: (f / "chat_template.jinja").write_text("x"), "sidecars: chat template: changed"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x00" * 40), "files: output model.safetensors"),
        (lambda f: (f / "config.json").write_text("{"), "files: output config.json"),
    ],
)
def test_what_lies_beside_is_checked(tmp_path: Path, change: Any, says: str) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "packed")
    change(output)
    assert says in found(source, output, VARIANTS["packed"])


def test_custom_code_must_come_along(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source", auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"})
    (source / "modeling_mine.py").write_text("class Mine: ...")
    output = write_output(source, tmp_path / "output", "packed")
    assert found(source, output, VARIANTS["packed"]) == ""
    (output / "modeling_mine.py").unlink()
    assert "modeling_mine.py: missing; wanted carried over" in found(source, output, VARIANTS["packed"])


@pytest.mark.parametrize(("at", "says"), [(12, "header"), (-1, "cut off")])
def test_a_flipped_byte_or_a_cut_tail(tmp_path: Path, at: int, says: str) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "packed")
    data = bytearray((output / "model.safetensors").read_bytes())
    if at < 0:
        del data[-1000:]
    else:
        data[at] ^= 255
    (output / "model.safetensors").write_bytes(data)
    assert "files: output model.safetensors" in found(source, output, VARIANTS["packed"])


def test_a_cache_that_was_promised(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "modelopt")
    promised = VARIANTS["modelopt"].model_copy(update={"kv_cache": "fp8"})
    assert "key-value cache: no scales" in found(source, output, promised)
    ones = {
        f"model.layers.{n}.self_attn.{kind}_proj.{kind}_scale": np.ones(1, np.float32) for n in (0, 1) for kind in "kv"
    }
    damage(output, lambda tensors: tensors.update(ones))
    (only,) = findings_on(source, output, promised)
    assert only.severity == "warning"
    assert "every scale is 1.0" in str(only)


def test_input_scales_must_differ(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "int8")

    def add(tensors: dict[str, Any]) -> None:
        layers = [name.removesuffix(".weight_scale") for name in tensors if name.endswith(".weight_scale")]
        tensors |= {f"{layer}.input_scale": np.ones(1, np.float32) for layer in layers}

    damage(output, add)
    assert "input scales are 1; wanted what calibration saw" in found(source, output, VARIANTS["int8"])


def test_the_stage_writes_its_findings(tmp_path: Path) -> None:
    from builders.integrity import read_integrity
    from builders.integrity.check import check
    from builders.run_stage import Job

    source = write_tiny(tmp_path / "source")
    output = write_output(source, tmp_path / "output", "packed")
    shutil.rmtree(tmp_path / "made", ignore_errors=True)
    (tmp_path / "made").mkdir()
    job = Job(
        "integrity:x", {"variant": VARIANTS["packed"].model_dump(mode="json")}, {"source": source, "output": output},
        tmp_path / "made", tmp_path, tmp_path, lambda _event: None,
    )  # fmt: skip
    check(job)
    assert read_integrity(tmp_path / "made").findings == ()
    assert json.loads((tmp_path / "made" / "integrity.json").read_text()) == {"findings": []}
