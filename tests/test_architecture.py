"""Imports point one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "recipes": set(),
    "artifacts": {"recipes"},
    "builders": {"recipes", "artifacts"},
    "evaluation": {"recipes", "artifacts", "builders"},
    "flows": {"recipes", "artifacts", "builders", "evaluation"},
}

OWN_ENVIRONMENT = {"workers", "triton_models"}
"""Folders whose scripts run in a tool's own environment."""


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_only_what_lies_below(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        if OWN_ENVIRONMENT & set(path.parts):
            continue
        wrong = imports(path) & set(MAY_IMPORT) - MAY_IMPORT[room] - {room}
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"
        if room != "flows":
            assert "prefect" not in imports(path), path
        assert not imports(path) & {"torch", "transformers", "lm_eval", "llmcompressor"}, path


def test_workers_import_nothing_of_the_house() -> None:
    for path in (*ROOT.glob("*/workers/*.py"), *ROOT.glob("builders/serving/triton_models/*.py")):
        assert not imports(path) & set(MAY_IMPORT), path
