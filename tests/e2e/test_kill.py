"""Kill a build at any moment, run the same command again: it ends in the same releases, byte for byte."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from artifacts.manifest import Manifest, scan
from artifacts.registry import BUILD
from tests.e2e.conftest import DEMO, SMALL, Bench, sets

KILLS = 5


@pytest.fixture(scope="module")
def undisturbed(new_bench: Callable[[], Bench]) -> tuple[Manifest, int]:
    """Every published byte of a build left alone, and how many lines it says on its way."""
    bench = new_bench()
    done = bench.run("build", str(DEMO), *sets(*SMALL))
    assert done.returncode == 0, done.stderr
    return published(bench), len(done.stderr.splitlines())


def published(bench: Bench) -> Manifest:
    manifest = scan(bench.home / "registry")
    return Manifest(files=tuple(entry for entry in manifest.files if Path(entry.path).name != BUILD))


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stderr is not None
    for line in process.stderr:  # noqa: UP028 - leaving a `yield from` early would close the pipe
        yield line


def wait_until_gone(bench: Bench) -> None:
    deadline = time.monotonic() + 20
    while left := bench.processes():
        assert time.monotonic() < deadline, f"left behind: {[process.info['cmdline'] for process in left]}"
        time.sleep(0.1)


def test_killed_at_random_moments(new_bench: Callable[[], Bench], undisturbed: tuple[Manifest, int]) -> None:
    wanted, lines = undisturbed
    bench, rng = new_bench(), random.Random(20261201)
    arguments = ("build", str(DEMO), *sets(*SMALL))
    for _ in range(KILLS):
        process = bench.start(*arguments, start_new_session=True)
        after = rng.randrange(lines // 2)
        for number, _line in enumerate(lines_of(process)):
            if number >= after:
                break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_until_gone(bench)
    result = bench.run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    assert published(bench) == wanted
    assert json.loads(result.stdout)["stages"]["cached"] > 0  # what was finished before a kill was not done again


def test_interrupted_by_hand(new_bench: Callable[[], Bench]) -> None:
    bench = new_bench()
    process = bench.start("build", str(DEMO), *sets(*SMALL))
    for line in lines_of(process):
        if "checkpoint: 0 of" in line:
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "run the same command again" in said
    wait_until_gone(bench)


def test_a_killed_worker_fails_its_variant_only(
    new_bench: Callable[[], Bench], undisturbed: tuple[Manifest, int]
) -> None:
    wanted, _ = undisturbed
    bench = new_bench()
    process = bench.start("build", str(DEMO), *sets(*SMALL), "--json")
    victim: list[psutil.Process] = []
    while not victim:
        assert process.poll() is None, process.communicate()
        victim = [p for p in bench.processes() if "llmcompressor_quantize" in " ".join(p.info["cmdline"])]
        time.sleep(0.05)
    job = json.loads(Path(victim[0].info["cmdline"][-1]).read_text())
    name = job["stage"].partition(":")[2]
    victim[0].kill()
    out, err = process.communicate(timeout=900)
    assert process.returncode == 1, err
    rows = {row["variant"]: row for row in json.loads(out)["releases"]}
    assert rows[name]["verdict"] == "FAILED"
    assert "killed" in rows[name]["reason"]
    assert all(row["release_id"] for variant, row in rows.items() if variant != name)
    assert bench.run("build", str(DEMO), *sets(*SMALL)).returncode == 0
    assert published(bench) == wanted
