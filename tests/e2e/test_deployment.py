"""The README's Prefect section, on a server of its own: `prefect deployment run build-engine/on-demand`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, Bench

PREFECT = str(Path(sys.executable).with_name("prefect"))


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture
def server(tmp_path: Path, demo: tuple[Bench, dict[str, Any]]) -> Iterator[dict[str, str]]:
    """The environment of clients of a fresh Prefect server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "ENGINEWORKS_HOME": str(demo[0].home),
        "ENGINEWORKS_CHECKOUT": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{environment['PREFECT_API_URL']}/health").close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield environment
        os.killpg(process.pid, signal.SIGKILL)


def test_deployment_runs_the_build(server: dict[str, str], demo: tuple[Bench, dict[str, Any]], tmp_path: Path) -> None:
    def prefect(*arguments: str) -> str:
        done = subprocess.run(
            [PREFECT, "--no-prompt", *arguments], env=server, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    prefect("work-pool", "create", "cpu", "--type", "process")
    prefect("deploy", "--all")
    with (tmp_path / "worker.log").open("w") as log:
        command = [PREFECT, "worker", "start", "--pool", "cpu", "--run-once"]
        prefect("deployment", "run", "build-engine/on-demand", "--param", "recipe=recipes/smollm2-135m.yaml")
        subprocess.run(command, env=server, cwd=tmp_path, stdout=log, stderr=log, check=False, timeout=600)
    api = server["PREFECT_API_URL"]
    (run,) = post(f"{api}/flow_runs/filter", {})
    assert run["state"]["type"] == "COMPLETED", (tmp_path / "worker.log").read_text()
    assert run["parameters"] == {"recipe": "recipes/smollm2-135m.yaml"}
    (table,) = post(f"{api}/artifacts/filter", {"artifacts": {"key": {"any_": ["releases"]}}})
    rows = json.loads(table["data"])
    assert {row["variant"]: row["release_id"] for row in rows} == {
        row["variant"]: row["release_id"] for row in demo[1]["releases"]
    }
