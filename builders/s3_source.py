"""Checkpoints under an S3 prefix. Credentials, region and endpoint as for the AWS CLI."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.digest import digest_json
from builders.checkpoint import INDEX, read_checkpoint
from builders.model_facts import ModelFacts, facts_of_checkpoint
from recipes.errors import BadRequest, Problem, StageFailed

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def fingerprint(uri: str) -> str:
    """Over keys, sizes and ETags of all objects. Raises :class:`BadRequest` when there are none."""
    objects = list(_objects(uri))
    if not objects:
        raise BadRequest(Problem("source.uri", f"nothing under {uri}", "a checkpoint"))
    return digest_json([[name, item["Size"], item["ETag"]] for name, item in objects])


def model_facts(uri: str) -> ModelFacts:
    """Shapes from config and safetensors headers, fetched by range; the tensors' own bytes stay where they are."""
    import tempfile

    bucket, prefix = _split(uri)
    with tempfile.TemporaryDirectory() as name, _explained(uri):
        folder = Path(name)
        for file, item in _objects(uri):
            target = folder / file
            if "/" in file:
                continue
            if file.endswith(".safetensors"):
                _fetch_header(bucket, f"{prefix}{file}", int(item["Size"]), target)
            elif file in ("config.json", INDEX):
                _client().download_file(bucket, f"{prefix}{file}", str(target))
            elif file.endswith((".bin", ".pt", ".pth")):
                target.touch()  # named, so that a pickle-only prefix is refused as one
        return facts_of_checkpoint(read_checkpoint(folder, "source.uri"))


def download(uri: str, folder: Path) -> None:
    """Every object below the prefix into ``folder``; files of the right size from an earlier try are kept."""
    bucket, prefix = _split(uri)
    with _explained(uri):
        for file, item in _objects(uri):
            target = folder / file
            if ".." in Path(file).parts:
                raise BadRequest(Problem("source.uri", f"an object named {file!r}", "names without '..'"))
            if target.exists() and target.stat().st_size == item["Size"]:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            _client().download_file(bucket, f"{prefix}{file}", str(partial))
            partial.rename(target)


def _fetch_header(bucket: str, key: str, size: int, target: Path) -> None:
    client = _client()
    first = client.get_object(Bucket=bucket, Key=key, Range="bytes=0-7")["Body"].read()
    length = min(8 + int.from_bytes(first, "little"), size)
    header = client.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{length - 1}")["Body"].read()
    with target.open("wb") as stream:
        stream.write(header)
        stream.truncate(size)  # sparse: as long as the object, so that its offsets can be checked


def _objects(uri: str) -> Iterator[tuple[str, Any]]:
    bucket, prefix = _split(uri)
    with _explained(uri):
        for page in _client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for item in page.get("Contents", []):
                name = str(item.get("Key", ""))[len(prefix) :]
                if name and not name.endswith("/"):
                    yield name, item


def _split(uri: str) -> tuple[str, str]:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, prefix.rstrip("/") + "/"


def _client() -> S3Client:
    import boto3

    return boto3.Session().client("s3")  # pyright: ignore[reportUnknownMemberType]


@contextmanager
def _explained(uri: str) -> Generator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in ("NoSuchBucket", "AccessDenied", "403", "404", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
            raise BadRequest(
                Problem("source.uri", f"{uri}: {code}", "a prefix that these credentials may read")
            ) from None
        raise StageFailed("source", "network", f"{uri}: {code}") from None
    except BotoCoreError as error:
        raise StageFailed(
            "source",
            "network",
            f"{uri} can't be read ({type(error).__name__})",
            hint="Check AWS_ENDPOINT_URL and credentials",
        ) from None
