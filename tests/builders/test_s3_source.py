"""Checkpoints under an S3 prefix, on a real server."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import boto3
import pytest

from builders import s3_source
from builders.fetch import fetch_s3
from builders.run_stage import Job
from recipes.errors import BadRequest
from tests.builders.test_checkpoint import write_safetensors
from tests.conftest import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def uri(s3_server: S3Server, tmp_path: Path) -> str:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {"model.layers.0.mlp.down_proj.weight": [64, 128]})
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    prefix = f"sources/{uuid.uuid4().hex}"
    client = boto3.Session().client("s3")
    for path in folder.iterdir():
        client.upload_file(str(path), "releases", f"{prefix}/{path.name}")
    return f"s3://releases/{prefix}"


def job(tmp_path: Path, uri: str, fingerprint: str) -> Job:
    for name in ("output", "scratch"):
        (tmp_path / name).mkdir(exist_ok=True)
    params = {"uri": uri, "fingerprint": fingerprint, "allow_pickle": False}
    return Job("checkpoint", params, {}, tmp_path / "output", tmp_path / "scratch", tmp_path, lambda _event: None)


def test_shapes_come_from_headers_alone(uri: str) -> None:
    facts = s3_source.model_facts(uri)
    assert [(linear.in_features, linear.out_features) for linear in facts.linears] == [(128, 64)]


def test_fetch_keeps_what_an_interrupted_try_brought(uri: str, tmp_path: Path) -> None:
    fetching = job(tmp_path, uri, s3_source.fingerprint(uri))
    whole = (tmp_path / "checkpoint" / "config.json").read_bytes()
    (tmp_path / "scratch" / "config.json").write_bytes(whole)
    fetch_s3(fetching)
    assert {path.name for path in (tmp_path / "output").iterdir()} == {"model.safetensors", "config.json"}


def test_a_source_that_changed_since_the_plan_is_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="changed while it was fetched"):
        fetch_s3(job(tmp_path, uri, "what the plan saw"))


def test_nothing_there(s3_server: S3Server) -> None:
    with pytest.raises(BadRequest, match=r"nothing under s3://releases/none"):
        s3_source.fingerprint("s3://releases/none")
    with pytest.raises(BadRequest, match="NoSuchBucket"):
        s3_source.fingerprint("s3://no-such-bucket/none")
