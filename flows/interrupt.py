"""Ctrl-C and SIGTERM: seen everywhere, even when a library in between swallows the exception they raise."""

from __future__ import annotations

import signal
import threading

interrupted = threading.Event()
"""Set for good once this process was asked to stop. Workers end when they see it."""


def watch_signals() -> None:
    """Turn both signals into KeyboardInterrupt in the main thread, and into :data:`interrupted` for everyone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: object) -> None:
    interrupted.set()
    raise KeyboardInterrupt
