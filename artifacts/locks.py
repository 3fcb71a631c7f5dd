"""Locks between processes. The kernel drops them when their holder dies, so none is ever left behind."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from recipes.errors import StoreError


@contextmanager
def locked(path: Path, *, shared: bool = False, waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock file ``path``. ``waiting`` is called once if somebody else holds it, before waiting for them."""
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        stream = path.open("a+b")
    except OSError as error:
        raise StoreError(f"can't open the lock {path} ({error.strerror})", hint="Is the store writable?") from None
    with stream:
        try:
            fcntl.flock(stream, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(stream, mode)
        yield


@contextmanager
def locked_or_refused(path: Path, refusal: str) -> Generator[None]:
    """Hold the lock alone, or raise :class:`StoreError` with ``refusal`` when anybody else holds it."""
    with path.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(refusal) from None
        yield
