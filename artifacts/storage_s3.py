"""A registry under an S3 prefix. Credentials, region, endpoint and proxy as for the AWS CLI (``AWS_*``)."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from base64 import b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    NoCredentialsError,
)

from artifacts.manifest import FileEntry
from artifacts.storage import StoredObject, Tagged
from recipes.errors import RegistryError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PART_BYTES = 16 << 20
PARTS_AT_ONCE = 4
"""Parts in flight for one file: 64 MiB of memory at most."""
SHA256 = "sha256"
"""Metadata field that carries a whole file's hash (a multipart checksum is one of its parts' hashes)."""
TAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
COPY_AT_MOST = 5 << 30
PROBES = "probes/"
"""Where conditional writes are tried; anything left there is of no worth."""
MISSING = ("NoSuchKey", "404", "NotFound")


class S3Storage:
    """Implements :class:`artifacts.storage.Storage` over a bucket prefix."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")

    @cached_property
    def _client(self) -> S3Client:
        config = Config(
            retries={"mode": "standard", "max_attempts": 5},
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=32,
            s3={"addressing_style": "auto"},
        )
        with self._explained():
            # A session of its own: the default one keeps the first credentials it saw, and is not for threads.
            return boto3.Session().client("s3", config=config)  # pyright: ignore[reportUnknownMemberType]

    @cached_property
    def _transfer(self) -> TransferConfig:
        return TransferConfig(
            multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )

    def check(self) -> None:
        with self._explained():
            self._client.head_bucket(Bucket=self.bucket)

    def read(self, key: str) -> bytes | None:
        there = self.read_tagged(key)
        return there and there.data

    def read_tagged(self, key: str) -> Tagged | None:
        with self._explained(key):
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=self.prefix + key)
                return Tagged(answer["Body"].read(), answer["ETag"])
            except ClientError as error:
                if _code(error) in MISSING:
                    return None
                raise

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        with self._explained(key):
            try:
                self._client.put_object(
                    Bucket=self.bucket, Key=self.prefix + key, Body=data, IfMatch=tag, ChecksumAlgorithm="SHA256"
                )
            except ClientError as error:
                if _code(error) in (*TAKEN, *MISSING):
                    return False
                raise
        return True

    def delete(self, key: str) -> None:
        with self._explained(key):
            self._client.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    def copy(self, source: str, key: str, entry: FileEntry) -> bool:
        """Vouched for by the checksum that the server works out for the copy, which AWS does up to 5 GiB."""
        if entry.size > COPY_AT_MOST:
            return False
        with self._explained(key):
            try:
                answer = self._client.copy_object(
                    Bucket=self.bucket,
                    Key=self.prefix + key,
                    CopySource={"Bucket": self.bucket, "Key": self.prefix + source},
                    ChecksumAlgorithm="SHA256",
                    Metadata={SHA256: entry.sha256},
                    MetadataDirective="REPLACE",
                )
            except ClientError as error:
                if _code(error) in MISSING:
                    return False
                raise
        seen = answer["CopyObjectResult"].get("ChecksumSHA256")
        return seen == b64encode(bytes.fromhex(entry.sha256)).decode()

    def lacks_conditions(self) -> str:
        key = f"{PROBES}{uuid.uuid4().hex}"
        if not self.create(key, b"1"):
            return "If-None-Match: * was refused for a new object"
        try:
            if self.create(key, b"2"):
                return "If-None-Match: * was ignored: an object that was there has been overwritten"
            if self.replace(key, b"3", '"00000000000000000000000000000000"'):
                return "If-Match was ignored: an object with another ETag has been overwritten"
            return ""
        finally:
            with contextlib.suppress(RegistryError):  # a promoter may lack the right to delete
                self.delete(key)

    def now(self) -> datetime:
        with self._explained():
            headers = self._client.head_bucket(Bucket=self.bucket)["ResponseMetadata"]["HTTPHeaders"]
        return parsedate_to_datetime(headers["date"]).astimezone(UTC)

    def create(self, key: str, data: bytes) -> bool:
        with self._explained():
            try:
                self._client.put_object(
                    Bucket=self.bucket, Key=self.prefix + key, Body=data, IfNoneMatch="*", ChecksumAlgorithm="SHA256"
                )
            except ClientError as error:
                if _code(error) in TAKEN:
                    return False
                raise
        return True

    def upload(self, path: Path, key: str, entry: FileEntry) -> None:
        arguments = {"ChecksumAlgorithm": "SHA256", "Metadata": {SHA256: entry.sha256}}
        with self._explained():
            self._client.upload_file(
                str(path), self.bucket, self.prefix + key, ExtraArgs=arguments, Config=self._transfer
            )

    def download(self, key: str, path: Path, entry: FileEntry) -> None:
        with self._explained(key):
            self._client.download_file(self.bucket, self.prefix + key, str(path), Config=self._transfer)
        with path.open("rb") as stream:
            seen = hashlib.file_digest(stream, "sha256").hexdigest()
        if seen != entry.sha256:
            path.unlink()
            raise RegistryError(
                f"{self.url}/{key} is damaged: sha256 {seen[:12]}, the manifest says {entry.sha256[:12]}"
            )

    def has(self, key: str, entry: FileEntry) -> bool:
        with self._explained():
            try:
                head = self._client.head_object(Bucket=self.bucket, Key=self.prefix + key)
            except ClientError as error:
                if _code(error) in MISSING:
                    return False
                raise
        return head["ContentLength"] == entry.size and head.get("Metadata", {}).get(SHA256) == entry.sha256

    def digest(self, key: str) -> tuple[int, str] | None:
        seen, size = hashlib.sha256(), 0
        with self._explained():
            try:
                body = self._client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"]
            except ClientError as error:
                if _code(error) in MISSING:
                    return None
                raise
            for block in body.iter_chunks(4 << 20):
                seen.update(block)
                size += len(block)
        return size, seen.hexdigest()

    def list(self, prefix: str) -> Iterator[StoredObject]:
        with self._explained():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix
            )
            for page in pages:
                for item in page.get("Contents", []):
                    modified = item.get("LastModified") or datetime.now(UTC)
                    yield StoredObject(item.get("Key", "")[len(self.prefix) :], item.get("Size", 0), modified)

    @contextmanager
    def _explained(self, key: str = "") -> Generator[None]:
        """boto3's errors in our words. They quote the endpoint and the bucket, never a credential."""
        where = f"{self.url}/{key}" if key else self.url
        try:
            yield
        except NoCredentialsError:
            raise RegistryError(
                f"no AWS credentials for {self.url}",
                hint="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ) from None
        except (ConnectionError, HTTPClientError) as error:
            raise RegistryError(
                f"{where} can't be reached ({type(error).__name__})",
                hint="Check the network and AWS_ENDPOINT_URL; then run again",
            ) from None
        except ClientError as error:
            raise RegistryError(f"{where}: {_words(error)}") from None
        except BotoCoreError as error:
            raise RegistryError(f"{where}: {type(error).__name__}", hint="Check the AWS settings") from None
        except Exception as error:
            # S3Transfer wraps what failed below it in its own error, which names the file and quotes the cause.
            if type(error).__name__ in ("S3UploadFailedError", "RetriesExceededError", "S3DownloadFailedError"):
                raise RegistryError(
                    f"{where}: the transfer failed ({error})", hint="Run again to go on from here"
                ) from None
            raise


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _words(error: Any) -> str:
    match _code(error):
        case "NoSuchBucket" | "404":
            return "no such bucket or object"
        case "AccessDenied" | "403" | "InvalidAccessKeyId" | "SignatureDoesNotMatch" as code:
            return f"access denied ({code}); these credentials may not do this"
        case code:
            return f"the server answered {code or 'an error'}"
