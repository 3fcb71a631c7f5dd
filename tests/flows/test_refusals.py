"""Bad sources and registries, through the command line: exit 2 or 1 before anything is made, in one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders.test_checkpoint import write_safetensors
from tests.flows.test_cli import engineworks

RECIPE = """
model: tiny
source: path:checkpoint
variants: {fp8: {scheme: fp8}}
evaluation: {gate: {margin: 0.05}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe over a checkpoint of two shards beside it."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_safetensors(folder / "a.safetensors", {"model.embed_tokens.weight": [32, 64]})
    write_safetensors(folder / "b.safetensors", {"model.layers.0.mlp.down_proj.weight": [64, 128]})
    weight_map = {"model.embed_tokens.weight": "a.safetensors", "model.layers.0.mlp.down_proj.weight": "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE)
    return path


def refused(tmp_path: Path, *arguments: str, code: int = 2) -> str:
    done = engineworks(*arguments, home=tmp_path / "home")
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


def test_it_plans_when_whole(recipe: Path, tmp_path: Path) -> None:
    done = engineworks("plan", str(recipe), "--json", home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    stages = json.loads(done.stdout)["stages"]
    assert {stage["status"] for stage in stages} == {"todo"}
    assert all(len(stage["key"]) == 64 for stage in stages)


def test_a_missing_shard(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "b.safetensors").unlink()
    assert "1 of 2 shards missing: b.safetensors" in refused(tmp_path, "build", str(recipe))


def test_a_pickle_checkpoint(recipe: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "checkpoint").glob("*.safetensors*"):
        path.unlink()
    (tmp_path / "checkpoint" / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    assert "set source.allow_pickle: true" in refused(tmp_path, "build", str(recipe))


def test_fp8_for_an_a100_engine(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ngpu: NVIDIA A100\nsm: 80\nmemory_gib: 80\nruntime: engine\ntensorrt_llm: 1.2.1\n", encoding="utf-8"
    )
    said = refused(tmp_path, "plan", str(recipe), "--set", f"targets=[{tmp_path / 'mine.yaml'}]")
    assert "variants.fp8.scheme: 'fp8' can't run on target mine (engine)" in said
    assert "int8 or awq" in said


def test_a_registry_that_is_no_directory(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = refused(tmp_path, "build", str(recipe), "--registry", f"file://{tmp_path / 'file'}", code=1)
    assert "can't be used" in said


def test_a_store_that_is_no_directory(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "store").write_text("x")
    assert "ENGINEWORKS_HOME" in refused(tmp_path, "plan", str(recipe), code=1)


def test_not_yaml(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("model: [x\n")
    assert "bad.yaml:2: not YAML" in refused(tmp_path, "build", str(tmp_path / "bad.yaml"))
