"""Run the flow in this process, for the command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, cast

from flows.progress import shown
from flows.result import BuildResult

DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
"""Ours to show on a terminal are the stages. Anything the user has set is left alone."""


def run_here(recipe: Path, overrides: tuple[str, ...], registry: str | None, *, quiet: bool) -> BuildResult:
    """The flow's result, whether everything was published or not. Raises what made the flow itself fail."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    from flows.build_engine import build_engine, listener

    _start_server()
    with shown(quiet=quiet) as show:
        token = listener.set(show)
        try:
            run: Any = build_engine
            state = run(str(recipe), list(overrides), registry, return_state=True)
        finally:
            listener.reset(token)
    outcome = state.result(raise_on_failure=False)
    if isinstance(outcome, BaseException):
        raise outcome
    return cast("BuildResult", outcome)


def _start_server() -> None:
    """Start a temporary Prefect server, unless one is configured, that ends with this process however that ends.

    Prefect stops its own when a process leaves in good order, after the last events were sent. A killed process can't:
    then the shell here notices that its input is closed.
    """
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import get_current_settings

    if get_current_settings().api.url:
        return
    server = SubprocessASGIServer()
    server.start()
    if server.server_process is not None:
        watch = ["/bin/sh", "-c", f"cat >/dev/null; kill -9 {server.server_process.pid} 2>/dev/null"]
        _watchers.append(subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True))


_watchers: list[subprocess.Popen[bytes]] = []
"""Kept for their open pipes."""
