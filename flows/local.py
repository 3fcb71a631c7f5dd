"""Run the flow in this process, for the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from flows.progress import shown
from flows.result import BuildResult

DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_CLI_PROMPT": "false",
}
"""Ours to show on a terminal are the stages. Anything the user has set is left alone."""


def run_here(recipe: Path, overrides: tuple[str, ...], registry: str | None, *, quiet: bool) -> BuildResult:
    """The flow's result, whether everything was published or not. Raises what made the flow itself fail."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    from flows.build_engine import build_engine, listener

    with shown(quiet=quiet) as show:
        token = listener.set(show)
        try:
            state = build_engine(str(recipe), list(overrides), registry, return_state=True)
        finally:
            listener.reset(token)
    outcome = state.result(raise_on_failure=False)
    if isinstance(outcome, BaseException):
        raise outcome
    return cast("BuildResult", outcome)
