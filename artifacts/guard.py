"""Keeps a promotion or publication and a deletion of the same release apart, without a lock that could be left behind.

::

    pins/<model>/<variant>/<id>/<nonce>         somebody is publishing or promoting it now
    tombstones/<model>/<variant>/<id>.json      it is to go (marked), is going (deleting), or was wanted again (spared)

Each side first writes its own sign and then looks for the other's. Storage is strongly consistent, so at least one of
two that meet sees the other; who promotes refuses, who deletes spares.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from artifacts.digest import canonical_json
from artifacts.release import ReleaseRef
from artifacts.storage import Storage
from recipes.errors import RegistryError
from recipes.strict import Strict

PIN_LASTS = timedelta(days=2)
"""A pin older than this was left by a process that died. No upload or check of one release takes so long."""


class Tombstone(Strict):
    """Says that a release is to be deleted."""

    state: Literal["marked", "deleting", "spared"]
    at: AwareDatetime
    """When it was marked, by the registry's clock."""


@contextmanager
def kept(storage: Storage, ref: ReleaseRef) -> Generator[None]:
    """While the block runs nobody begins to delete ``ref``; a mark on it is lifted.

    Raises :class:`RegistryError` when its deletion has begun.
    """
    pin = f"{_pins(ref)}{uuid.uuid4().hex}"
    storage.create(pin, canonical_json({"at": storage.now().isoformat()}))
    try:
        _spare(storage, ref)
        yield
    finally:
        with contextlib.suppress(RegistryError):  # it runs out by itself
            storage.delete(pin)


def _spare(storage: Storage, ref: ReleaseRef) -> None:
    while found := storage.read_tagged(tombstone_key(ref)):
        stone = _tombstone(found.data, ref)
        if stone.state == "deleting":
            raise RegistryError(f"{ref} is being deleted by a prune", hint="Publish it again when that has ended")
        if stone.state == "spared" or change(storage, ref, stone, found.tag, "spared"):
            return


def mark(storage: Storage, ref: ReleaseRef, now: datetime) -> Tombstone:
    """Say that ``ref`` is to go. A mark that stands keeps its time; one that was lifted starts anew."""
    fresh = Tombstone(state="marked", at=now)
    while not storage.create(tombstone_key(ref), canonical_json(fresh)):
        found = storage.read_tagged(tombstone_key(ref))
        if found is None:
            continue
        stone = _tombstone(found.data, ref)
        if stone.state != "spared" or storage.replace(tombstone_key(ref), canonical_json(fresh), found.tag):
            return fresh if stone.state == "spared" else stone
    return fresh


def tombstone(storage: Storage, ref: ReleaseRef) -> tuple[Tombstone, str] | None:
    """With its tag for :func:`change`."""
    found = storage.read_tagged(tombstone_key(ref))
    return (_tombstone(found.data, ref), found.tag) if found else None


def change(storage: Storage, ref: ReleaseRef, stone: Tombstone, tag: str, state: Literal["deleting", "spared"]) -> bool:
    """False: somebody else changed it first."""
    after = stone.model_copy(update={"state": state})
    return storage.replace(tombstone_key(ref), canonical_json(after), tag)


def pinned(storage: Storage, ref: ReleaseRef, now: datetime) -> bool:
    return any(now - pin.modified < PIN_LASTS for pin in storage.list(_pins(ref)))


def tombstone_key(ref: ReleaseRef) -> str:
    return f"tombstones/{ref}.json"


def _pins(ref: ReleaseRef) -> str:
    return f"pins/{ref}/"


def _tombstone(data: bytes, ref: ReleaseRef) -> Tombstone:
    try:
        return Tombstone.model_validate_json(data)
    except ValidationError:
        raise RegistryError(f"the tombstone {tombstone_key(ref)} is damaged", hint="Delete it") from None
