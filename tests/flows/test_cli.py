"""The command line: a frozen surface, clear refusals, right exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli import cli

DEMO = Path(__file__).parents[2] / "recipes" / "smollm2-135m.yaml"


def engineworks(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from flows.cli import main; main()", *arguments]
    environment = {"ENGINEWORKS_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_commands_are_these() -> None:
    commands = {name: sorted(getattr(command, "commands", {})) for name, command in cli.commands.items()}
    assert commands == {
        "validate": [], "schema": [], "pin": [], "plan": [], "build": [], "try": [], "list": [], "show": [],
        "pull": [], "verify": [], "store": ["gc"], "import-command": [], "doctor": [],
        "promote": [], "rollback": [], "history": [],
    }  # fmt: skip


def test_help_needs_neither_prefect_nor_boto3() -> None:
    heavy = ("prefect", "boto3", "pydantic", "numpy")
    code = f"import sys; import flows.cli; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["build", "nowhere.yaml"], "no such file"),
        (["plan", str(DEMO), "--set", "variants.gptq.scheme=int3"], "wanted one of fp8"),
        (["plan", str(DEMO), "--set", "evaluation.tasks=[pydoc_nxt]"], "Did you mean 'pydoc_next'?"),
        (["plan", str(DEMO), "--set", "targets=[h1000]"], "Did you mean 'h100'?"),
        (["plan", str(DEMO), "--set", "evaluation.documents=20"], "at least"),
        (["show", "zzz"], "a release id"),
        (["verify", "abcd1234"], "no release 'abcd1234'"),
        (["list", "--registry", "ftp://x"], "s3://BUCKET/PREFIX"),
    ],
)
def test_bad_requests_exit_2_without_a_traceback(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = engineworks(*arguments, home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_validate_json_is_one_document(tmp_path: Path) -> None:
    done = engineworks("validate", str(DEMO), "--json", home=tmp_path)
    assert json.loads(done.stdout)["model"] == "smollm2-135m-instruct"


def test_gc_of_an_empty_store(tmp_path: Path) -> None:
    done = engineworks("store", "gc", "--json", home=tmp_path)
    assert json.loads(done.stdout) == {"records": 0, "artifacts": 0, "bytes": 0}
