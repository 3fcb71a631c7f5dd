"""How long a build takes from nothing, and again when nothing changed.

    uv run benchmarks/noop.py [--recipe R] [--home DIR] [--json]

With ``--home`` naming a home that holds the build already, only the warm time is new and ``cold_s`` is null.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
WARM_RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default=str(ROOT / "recipes" / "smollm2-135m.yaml"))
    parser.add_argument("--home", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engineworks-noop-") as fresh:
        home = arguments.home or Path(fresh)
        first_s, first = build(arguments.recipe, home)
        again = [build(arguments.recipe, home) for _ in range(WARM_RUNS)]
    assert all(result["stages"]["ran"] == 0 for _, result in again), "a build of unchanged inputs ran stages"
    document = {
        "cold_s": round(first_s, 2) if first["stages"]["cached"] == 0 else None,
        "warm_s": round(median(seconds for seconds, _ in again), 3),
        "stages": first["stages"]["ran"] + first["stages"]["cached"],
        "cached": again[-1][1]["stages"]["cached"],
    }
    print(json.dumps(document) if arguments.json else "\n".join(f"{k:8}{v}" for k, v in document.items()))


def build(recipe: str, home: Path) -> tuple[float, dict[str, Any]]:
    command = [
        sys.executable,
        "-c",
        "from flows.cli import main; main()",
        "build",
        recipe,
        "--home",
        str(home),
        "--json",
    ]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    seconds = time.monotonic() - started
    if not done.stdout:
        sys.exit(f"the build failed: {done.stderr}")
    return seconds, json.loads(done.stdout)


if __name__ == "__main__":
    main()
