"""Which interpreter a tool runs in, and what uv is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from builders.toolchains import REQUIREMENTS, find_toolchain, uv_environment
from recipes.errors import BadRequest

VARIABLE = "ENGINEWORKS_TOOLCHAIN_LLMCOMPRESSOR"


def test_pins_name_versions_and_nothing_of_a_machine() -> None:
    for path in REQUIREMENTS.glob("*.txt"):
        for line in path.read_text().splitlines():
            name, _, version = line.partition("==")
            assert name, line
            assert version, line
            assert not {"/", "@", "+"} & set(line), line


def test_uv_mode_has_an_environment_a_set_of_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    toolchain = find_toolchain("llmcompressor", tmp_path)
    assert not toolchain.ready
    assert toolchain.python.is_relative_to(tmp_path / "envs")


def test_system_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"system:{sys.executable}")
    toolchain = find_toolchain("llmcompressor", tmp_path)
    assert (toolchain.python, toolchain.ready) == (Path(sys.executable), True)
    before = toolchain.pins
    monkeypatch.setenv(f"{VARIABLE}_VERSION", "image-2")
    assert find_toolchain("llmcompressor", tmp_path).pins != before


@pytest.mark.parametrize("setting", ["system:/no/such/python", "conda"])
def test_a_wrong_setting_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv(VARIABLE, setting)
    with pytest.raises(BadRequest, match=VARIABLE):
        find_toolchain("llmcompressor", tmp_path)


def test_an_unknown_toolchain_has_a_near_one(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="Did you mean 'llmcompressor'"):
        find_toolchain("llm-compressor", tmp_path)


def test_pips_settings_are_passed_on_unless_uv_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    assert uv_environment()["UV_FIND_LINKS"] == "/wheels"
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")
    assert uv_environment()["UV_FIND_LINKS"] == "/mine"
