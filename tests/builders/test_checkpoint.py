"""A checkpoint is whole, or is refused in words that say what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.checkpoint import INDEX, read_checkpoint
from builders.model_facts import facts_of_checkpoint
from recipes.errors import BadRequest


def write_safetensors(path: Path, tensors: dict[str, list[int]]) -> None:
    header, data = {}, b""
    for name, shape in tensors.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes(size)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "a.safetensors", {"model.embed_tokens.weight": [32, 8]})
    write_safetensors(tmp_path / "b.safetensors", {"model.layers.0.mlp.down_proj.weight": [8, 24]})
    weight_map = {"model.embed_tokens.weight": "a.safetensors", "model.layers.0.mlp.down_proj.weight": "b.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(BadRequest) as refused:
        read_checkpoint(folder)
    return str(refused.value)


def test_a_whole_one_is_read(sharded: Path) -> None:
    facts = facts_of_checkpoint(read_checkpoint(sharded))
    assert facts.weight_bytes == 2 * (32 * 8 + 8 * 24)
    assert [(linear.in_features, linear.row_parallel) for linear in facts.linears] == [(24, True)]


def test_a_missing_shard(sharded: Path) -> None:
    (sharded / "b.safetensors").unlink()
    assert "1 of 2 shards missing: b.safetensors" in refusal(sharded)


def test_a_truncated_tail_and_a_flipped_header_byte(sharded: Path) -> None:
    shard = sharded / "a.safetensors"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    assert "a.safetensors: its tensors need" in refusal(sharded)
    shard.write_bytes(b"\xff" + whole[1:])
    assert "a.safetensors: its" in refusal(sharded)
    shard.write_bytes(whole[:8] + b"}" + whole[9:])
    assert "header is not JSON" in refusal(sharded)


def test_pickles_need_a_word(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert "source.allow_pickle: true" in refusal(tmp_path)
    assert read_checkpoint(tmp_path, allow_pickle=True).tensors == {}


def test_an_index_that_lies(sharded: Path) -> None:
    weight_map = {"nothing.weight": "a.safetensors", "x": "b.safetensors"}
    (sharded / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert "names nothing.weight in a.safetensors, which lacks it" in refusal(sharded)
