"""Move a channel: by compare-and-swap, on evidence, and for the record."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from pydantic import ValidationError

from artifacts.channel import Channel, Line, Move, channel_bytes, line_of, read_channel
from artifacts.digest import digest_json
from artifacts.evidence import damage, signature_problems, unmet
from artifacts.guard import kept
from artifacts.policy import Policy
from artifacts.registry import Progress, Registry
from artifacts.release import Release, ReleaseRef
from artifacts.storage import Tagged
from recipes.errors import BadRequest, Problem, RegistryError


class Channels:
    """The channels of one registry under one policy."""

    def __init__(self, registry: Registry, policy: Policy) -> None:
        self.registry = registry
        self.policy = policy

    def promote(
        self,
        ref: ReleaseRef,
        channel: str,
        by: str,
        override: str | None = None,
        progress: Progress = lambda _done, _total: None,
    ) -> tuple[Channel, bool]:
        """Point ``channel`` at ``ref``. False: it did already.

        Raises :class:`BadRequest` when the policy is not met and ``override`` is None, :class:`RegistryError` when the
        release is damaged, somebody else moved the channel meanwhile, or the storage can't decide between two movers.
        """
        line, wants = line_of(ref), self.policy.wants(channel)
        if override is not None and not override.strip():
            raise BadRequest(Problem("--override", "no reason", "a sentence: it is kept for ever"))
        self._demand_conditions()
        with kept(self.registry.storage, ref):
            release = self.registry.release(ref)
            before = self._read(line, channel)
            if before and before[0].current.release_id == ref.release_id:
                return before[0], False
            now = self.registry.storage.now()
            earlier = self.channel(line, wants.after) if wants.after else None
            missing = list(unmet(release, channel, wants, earlier, now))
            if wants.signed:
                missing += signature_problems(self.registry, release, self.policy, now)
            if release.verdict.outcome in wants.never:
                raise BadRequest(
                    Problem(
                        "verdict",
                        release.verdict.outcome,
                        " or ".join(wants.verdicts),
                        f"No override lets it into {channel}.",
                    )
                )
            if missing and override is None:
                raise BadRequest(missing)
            self._demand_whole(release, every_byte=wants.read_every_byte, progress=progress)
            move = self._move("promote", before, release, now, by, override if missing else None, missing)
            return self._write(line, channel, before, move), True

    def rollback(self, line: Line, channel: str, by: str, reason: str = "", to: str | None = None) -> Channel:
        """Point ``channel`` where it pointed before, or at a release of its history that starts with ``to``.

        It was let in once, so the policy is not asked again; the release must be there whole. Raises as
        :meth:`promote`.
        """
        self.policy.wants(channel)
        self._demand_conditions()
        before = self._read(line, channel)
        if before is None:
            raise BadRequest(Problem("channel", f"{line} has no {channel} yet", "one that was promoted to"))
        ref = line.ref(_target(before[0], to))
        with kept(self.registry.storage, ref):
            release = self.registry.release(ref)
            self._demand_whole(release, every_byte=False)
            move = self._move("rollback", before, release, self.registry.storage.now(), by, reason or None, [])
            return self._write(line, channel, before, move)

    def channel(self, line: Line, name: str) -> Channel | None:
        """As :func:`read`."""
        return read(self.registry, line, name)

    def _read(self, line: Line, name: str) -> tuple[Channel, Tagged] | None:
        found = self.registry.storage.read_tagged(line.key(name))
        if found is None:
            return None
        return read_channel(found.data, line, name, f"{self.registry.storage.url}/{line.key(name)}"), found

    def _move(
        self,
        action: Literal["promote", "rollback"],
        before: tuple[Channel, Tagged] | None,
        release: Release,
        now: datetime,
        by: str,
        reason: str | None,
        missing: list[Problem],
    ) -> Move:
        last = before[0].current if before else None
        return Move(
            revision=last.revision + 1 if last else 1,
            action=action,
            release_id=release.release_id,
            at=now,
            by=by,
            reason=reason or "",
            override=bool(missing),
            unmet=tuple(map(str, missing)),
            verdict=release.verdict.outcome,
            policy=self.policy.digest,
            nonce=uuid.uuid4().hex,
            previous=digest_json(last) if last else None,
        )

    def _write(self, line: Line, name: str, before: tuple[Channel, Tagged] | None, move: Move) -> Channel:
        storage, key = self.registry.storage, line.key(name)
        if before:
            after = before[0].with_move(move)
            won = storage.replace(key, channel_bytes(after), before[1].tag)
        else:
            after = Channel(model=line.model, variant=line.variant, channel=name, moves=(move,))
            won = storage.create(key, channel_bytes(after))
        if won:
            return after
        there = self.channel(line, name)
        if there and any(other.nonce == move.nonce for other in there.moves):
            return there  # our write had landed; its answer was lost and the retry met it
        how = f"{there.current.by} moved it to {there.current.release_id}" if there else "it was removed"
        raise RegistryError(
            f"{line} {name}: somebody else was first ({how})", hint="Look at `engineworks history`, then decide again"
        )

    def _demand_conditions(self) -> None:
        if why := self.registry.storage.lacks_conditions():
            raise RegistryError(
                f"{self.registry.storage.url} can't hold channels: {why}",
                hint="Two promoters could both win. Use a server with conditional writes",
            )

    def _demand_whole(
        self, release: Release, *, every_byte: bool, progress: Progress = lambda _done, _total: None
    ) -> None:
        if problems := damage(self.registry, release, every_byte=every_byte, progress=progress):
            raise RegistryError(
                f"{release.ref} is damaged in the registry: {'; '.join(map(str, problems[:5]))}",
                hint="No channel moves to it. Publish it again, or choose another",
            )


def read(registry: Registry, line: Line, name: str) -> Channel | None:
    """None: nothing was ever promoted to it. Raises :class:`RegistryError` when it was changed by hand."""
    data = registry.storage.read(line.key(name))
    return None if data is None else read_channel(data, line, name, f"{registry.storage.url}/{line.key(name)}")


def current(registry: Registry, line: Line, name: str) -> ReleaseRef:
    """Where ``name`` points. Raises :class:`BadRequest` when it points nowhere yet."""
    found = read(registry, line, name)
    if found is None:
        known = ", ".join(channel.channel for channel in channels_of(registry, line)) or "none"
        raise BadRequest(Problem("channel", f"{line} has no {name}", "one promoted to", f"There: {known}."))
    return found.ref


def channels_of(registry: Registry, line: Line | None = None) -> Iterator[Channel]:
    """Every channel of a line, or of the registry. Raises :class:`RegistryError` when one was changed by hand."""
    for item in registry.storage.list(f"channels/{line}/" if line else "channels/"):
        parts = item.key.removesuffix(".json").split("/")
        try:
            here = Line(model=parts[1], variant=parts[2])
        except (IndexError, ValidationError):
            continue  # not ours
        if len(parts) == 4 and (data := registry.storage.read(item.key)) is not None:
            yield read_channel(data, here, parts[3], f"{registry.storage.url}/{item.key}")


def _target(channel: Channel, to: str | None) -> str:
    current = channel.current.release_id
    if to is None:
        ladder = channel.ladder()
        if len(ladder) < 2:
            raise BadRequest(
                Problem("rollback", f"{channel.channel} has pointed at nothing before {current}", "a past")
            )
        return ladder[-2]
    found = {move.release_id for move in channel.moves if move.release_id.startswith(to)} - {current}
    if len(found) != 1:
        past = ", ".join(dict.fromkeys(m.release_id for m in channel.moves if m.release_id != current)) or "none"
        raise BadRequest(
            Problem("--to", repr(to), "one release that this channel pointed at before", f"There: {past}.")
        )
    return found.pop()
