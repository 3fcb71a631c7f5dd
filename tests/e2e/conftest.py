"""Real builds of the demo, through the command line, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "recipes" / "smollm2-135m.yaml"
SMALL = (
    "variants.int8=null", "variants.awq=null", "calibration.samples=4", "calibration.sequence_length=128",
    "evaluation.documents=60", "evaluation.gate.expected_flips=0.01", "evaluation.gate.margin=0.5",
    "variants.gptq.margin=0.5",
)  # fmt: skip
"""The demo cut down to two variants and a minute of work. Its verdicts mean nothing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All here is ``e2e``, and may take long where environments are made or two cores are busy."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(2400))


@dataclass(frozen=True)
class Bench:
    """A home of its own, sharing the tool environments of the session."""

    home: Path

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-u",
            "-c",
            "from flows.cli import main; main()",
            *arguments,
            "--home",
            str(self.home),
        ]
        environment = {**os.environ, "PREFECT_HOME": str(self.home / "prefect")}
        environment.pop("PREFECT_API_URL", None)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, text=True, cwd=ROOT, env=environment, **pipes, **more)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=1500)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def build(self, *overrides: str) -> dict[str, Any]:
        done = self.run("build", str(DEMO), "--json", *sets(*overrides))
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def processes(self) -> list[psutil.Process]:
        """Whatever still runs for this home."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(self.home) in part for part in process.info["cmdline"] or ()) and process.pid != os.getpid()
        ]


def sets(*overrides: str) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


@pytest.fixture(scope="session")
def tool_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the tool environments of the session."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def new_bench(tool_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    def new() -> Bench:
        home = tmp_path_factory.mktemp("home")
        for name in ("envs", "packages"):
            (tool_home / name).mkdir(exist_ok=True)
            (home / name).symlink_to(tool_home / name)
        return Bench(home)

    return new


@pytest.fixture(scope="session")
def demo(new_bench: Callable[[], Bench]) -> tuple[Bench, dict[str, Any]]:
    """The whole demo, built once."""
    bench = new_bench()
    return bench, bench.build()
