"""The disk fills up in the middle of quantization; with space again, the same command ends well."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import DEMO, SMALL, Bench, sets


@pytest.fixture
def small_disk(new_bench: Callable[[], Bench]) -> Iterator[Bench]:
    """A home whose store lies on a file system of 1 GB."""
    bench = new_bench()
    store = bench.home / "store"
    store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1000m", "tmpfs", str(store)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"can't mount a small file system here ({done.stderr.strip()})")
    yield bench
    subprocess.run(["umount", "-l", str(store)], check=True)


def fill(folder: Path) -> Path:
    """Take all the space that is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 16))
        except OSError:
            return filler


def test_a_full_disk(small_disk: Bench) -> None:
    arguments = ("build", str(DEMO), "--json", *sets(*SMALL))
    process = small_disk.start(*(argument for argument in arguments if argument != "--json"))
    assert process.stderr is not None
    for line in process.stderr:
        if "quantize:gptq: 7 of" in line or "quantize:gptq: 8 of" in line:
            break
    filler = fill(small_disk.home / "store")
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "gptq: not published" in out
    assert "disk" in out
    assert "Traceback" not in out
    filler.unlink()
    done = small_disk.run(*arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["stages"]["cached"] > 0
