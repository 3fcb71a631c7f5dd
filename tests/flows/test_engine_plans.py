"""The shipped recipes plan real engines: the models' true shapes, from sparse files."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from builders.trtllm.options import table_for
from tests.builders.trtllm.parser import parser_of
from tests.builders.trtllm.shapes import CONFIGS, tensors_of
from tests.flows.test_cli import engineworks

RECIPES = Path(__file__).parents[2] / "recipes"
MODELS = {"qwen2.5-7b-instruct": "qwen2.5-7b", "llama-3.1-8b-instruct": "llama-3.1-8b"}


def write_sparse(folder: Path, name: str) -> Path:
    """A whole checkpoint to anyone who reads headers; its 16 GB of zeros take no room on disk."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    header: dict[str, Any] = {}
    place = 0
    for tensor, (dtype, shape) in tensors_of(name).items():
        size = 2 * math.prod(shape)
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + place)
    return folder


@pytest.mark.parametrize("recipe", MODELS)
def test_shipped_recipes_plan_their_engines(tmp_path: Path, recipe: str) -> None:
    source = write_sparse(tmp_path / "source", MODELS[recipe])
    done = engineworks(
        "plan", str(RECIPES / f"{recipe}.yaml"), "--set", f"source=path:{source}", "--json", home=tmp_path / "home"
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert set(plan["commands"]) == {
        "engine:fp8.h100-engine", "engine:int8.a100-engine", "engine:int8.h100-engine", "engine:awq.a100-engine",
        "engine:awq.h100-engine",
    }  # fmt: skip
    for command in plan["commands"].values():
        program, *arguments = shlex.split(command)
        assert program == "trtllm-build"
        options = parser_of(table_for("1.2.1")).parse_args(arguments)
        assert int(options.max_seq_len) == 8192
        assert options.checkpoint_dir == "{checkpoint}"
    notes = "\n".join(plan["notes"])
    assert "int8.a100-engine: ModelOpt converts on any machine; its INT8 activations have one scale a tensor" in notes
    assert "sequences of 8192 at once" in notes
    assert "TensorRT-LLM is not on this machine" in notes


def test_the_converters_commands_are_planned_too(tmp_path: Path) -> None:
    source = write_sparse(tmp_path / "source", "llama-3.1-8b")
    done = engineworks(
        "plan", str(RECIPES / "llama-3.1-8b-instruct.yaml"), "--set", f"source=path:{source}",
        "--set", "engine.route=converter", "--json", home=tmp_path / "home",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    commands = json.loads(done.stdout)["commands"]
    assert commands["convert:int8.a100-engine"] == (
        "python3 examples/models/core/llama/convert_checkpoint.py --model_dir '{checkpoint}' --output_dir '{output}' "
        "--dtype auto --tp_size 1 --pp_size 1 --workers 1 --smoothquant 0.8 --per_token --per_channel"
    )
    assert commands["convert:awq.h100-engine"] == (
        "python3 examples/quantization/quantize.py --model_dir '{checkpoint}' --output_dir '{output}' --dtype auto "
        "--tp_size 1 --pp_size 1 --qformat int4_awq --awq_block_size 128"
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["variants.int8.targets=['h100:checkpoint']"], "'int8' can't run on target h100:checkpoint (checkpoint)"),
        (
            ["variants.gptq.targets=['h100:checkpoint']"],
            "does not load a compressed-tensors gptq checkpoint; wanted fp8",
        ),
        (["targets=['h100:tensorrt']"], "runtime 'tensorrt' on h100; wanted one of vllm, engine, checkpoint"),
        (["engine.options.max_output_len=1024"], "removed in TensorRT-LLM 0.12.0 (pinned: 1.2.1); wanted max_seq_len"),
        (["engine.options.max_seq_len=200000"], "at most 131072"),
        (["engine.optoins.max_seq_len=2000"], "Did you mean 'options'?"),
        (["targets=['cpu:engine']"], "runtime 'engine' on cpu; wanted one of vllm"),
        (
            ["variants.fp8.kv_cache=fp8"],
            "'fp8' on target l4; wanted engine targets, or tool: modelopt",
        ),
    ],
)
def test_refusals_before_anything_runs(tmp_path: Path, settings: list[str], says: str) -> None:
    source = write_sparse(tmp_path / "source", "llama-3.1-8b")
    extra = [part for setting in settings for part in ("--set", setting)]
    done = engineworks(
        "plan", str(RECIPES / "llama-3.1-8b-instruct.yaml"), "--set", f"source=path:{source}", *extra,
        home=tmp_path / "home",
    )  # fmt: skip
    assert done.returncode == 2
    assert says in done.stderr
