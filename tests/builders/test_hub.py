"""Checkpoints from the Hub, through a server on loopback that HF_ENDPOINT names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.fake_hub import REPO, FakeHub, fake_hub
from tests.builders.test_checkpoint import write_safetensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RECIPE = f"""\
model: tiny
# where it comes from
source: hf:{REPO}@main   # moves
variants: {{fp8: {{scheme: fp8}}}}
evaluation: {{gate: {{margin: 0.05}}}}
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    folder = tmp_path / "repo"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"model.layers.0.mlp.down_proj.weight": [64, 128]})
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    with fake_hub(folder, COMMIT) as server:
        yield server


def engineworks(tmp_path: Path, endpoint: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "ENGINEWORKS_HOME": str(tmp_path / "home"),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_XET": "1",
        **more,
    }
    command = [sys.executable, "-c", "from flows.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def fetch(tmp_path: Path, endpoint: str, **more: str) -> subprocess.CompletedProcess[str]:
    code = f"from builders import hub; print(hub.download({REPO!r}, {COMMIT!r}, allow_pickle=False))"
    environment = {
        "PATH": "/usr/bin:/bin",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_DISABLE_XET": "1",
        **more,
    }
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=120
    )


def test_plan_resolves_the_commit_and_reads_shapes(hub: FakeHub, tmp_path: Path) -> None:
    done = engineworks(tmp_path, hub.endpoint, "plan", str(tmp_path / "tiny.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stages"][0]["name"] == "checkpoint"
    assert not [line for line in hub.asked if line.startswith("GET") and line.endswith("pytorch_model.bin")]


def test_pin_writes_the_commit_and_leaves_the_rest(hub: FakeHub, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    done = engineworks(tmp_path, hub.endpoint, "pin", str(path))
    assert done.returncode == 0, done.stderr
    assert path.read_text() == RECIPE.replace("@main", f"@{COMMIT}")
    assert "already at" in engineworks(tmp_path, hub.endpoint, "pin", str(path)).stdout


def test_download_takes_no_pickle_and_works_offline_after(hub: FakeHub, tmp_path: Path) -> None:
    assert engineworks(tmp_path, hub.endpoint, "plan", str(tmp_path / "tiny.yaml")).returncode == 0
    done = fetch(tmp_path, hub.endpoint)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in Path(done.stdout.strip()).iterdir()}
    assert names == {"model.safetensors", "config.json"}
    before = len(hub.asked)
    done = engineworks(tmp_path, hub.endpoint, "plan", str(tmp_path / "tiny.yaml"), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert len(hub.asked) == before


def test_what_is_not_there(hub: FakeHub, tmp_path: Path) -> None:
    plan = ("plan", str(tmp_path / "tiny.yaml"), "--set")
    done = engineworks(tmp_path, hub.endpoint, *plan, "source=hf:org/other")
    assert (done.returncode, "no repository 'org/other'" in done.stderr) == (2, True), done.stderr
    done = engineworks(tmp_path, hub.endpoint, *plan, f"source=hf:{REPO}@v9")
    assert (done.returncode, "source.revision: 'v9'" in done.stderr) == (2, True), done.stderr
    done = engineworks(tmp_path, hub.endpoint, *plan, "model=x", HF_HUB_OFFLINE="1")
    assert (done.returncode, "not in the local cache" in done.stderr) == (1, True), done.stderr
    done = engineworks(tmp_path, "http://127.0.0.1:9", *plan, "model=x")
    assert (done.returncode, "the Hub can't be reached" in done.stderr) == (1, True), done.stderr


def test_pickles_only(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "repo" / "model.safetensors").unlink()
    done = engineworks(tmp_path, hub.endpoint, "plan", str(tmp_path / "tiny.yaml"))
    assert (done.returncode, "allow_pickle: true" in done.stderr) == (2, True), done.stderr
