"""A channel: one name that consumers follow, and every move it ever made.

``channels/<model>/<variant>/<channel>.json`` is this model's JSON. A target is part of a variant's name
(``fp8.h100-engine``). Moves are only ever added; each carries the hash of the one before it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, ValidationError, model_validator

from artifacts.digest import digest_json
from artifacts.manifest import Sha256
from artifacts.release import ReleaseId, ReleaseRef
from recipes.errors import BadRequest, Problem, RegistryError
from recipes.models import Slug
from recipes.strict import Strict


class Line(Strict):
    """What channels belong to: one variant of one model."""

    model: Slug
    variant: Slug

    def __str__(self) -> str:
        return f"{self.model}/{self.variant}"

    def ref(self, release_id: str) -> ReleaseRef:
        return ReleaseRef(model=self.model, variant=self.variant, release_id=release_id)

    def key(self, channel: str) -> str:
        return f"channels/{self}/{channel}.json"


def line_of(ref: ReleaseRef) -> Line:
    return Line(model=ref.model, variant=ref.variant)


def parse_line(text: str) -> Line:
    """``MODEL/VARIANT``. Raises :class:`BadRequest`."""
    model, _, variant = text.partition("/")
    try:
        return Line(model=model, variant=variant)
    except ValidationError:
        raise BadRequest(Problem("line", repr(text), "MODEL/VARIANT, such as llama-3.1-8b/fp8")) from None


class Move(Strict):
    """One step of a channel."""

    revision: Annotated[int, Field(ge=1)]
    action: Literal["promote", "rollback"]
    release_id: ReleaseId
    """Where the channel points from now on."""
    at: AwareDatetime
    """By the registry's clock."""
    by: str
    reason: str = ""
    override: bool = False
    """The policy was not met and ``reason`` says why it was done all the same."""
    unmet: tuple[str, ...] = ()
    """What the policy wanted and did not get."""
    verdict: str
    """The release's verdict."""
    policy: Sha256
    """Digest of the policy that was asked."""
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Tells the mover that a write whose answer was lost is there."""
    previous: Sha256 | None
    """Digest of the move before. None for the first."""

    @model_validator(mode="after")
    def _overrides_say_why(self) -> Move:
        if self.override and not self.reason.strip():
            raise ValueError("an override without a reason")
        return self


class Stay(Strict):
    """A time during which a channel pointed at one release."""

    release_id: ReleaseId
    since: AwareDatetime
    until: AwareDatetime | None
    """None: it still does."""
    withdrawn: bool
    """It ended by a rollback."""

    def lasted(self, now: AwareDatetime) -> timedelta:
        return (self.until or now) - self.since


class Channel(Strict):
    """Where one channel points, and how it came there."""

    schema_version: Literal[1] = 1
    model: Slug
    variant: Slug
    channel: Slug
    moves: Annotated[tuple[Move, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _linear(self) -> Channel:
        before: Move | None = None
        for number, move in enumerate(self.moves, 1):
            if move.revision != number:
                raise ValueError(f"move {number} says it is revision {move.revision}: the history has been changed")
            if move.previous != (digest_json(before) if before else None):
                raise ValueError(f"move {number} does not follow from the one before: the history has been changed")
            before = move
        return self

    @property
    def line(self) -> Line:
        return Line(model=self.model, variant=self.variant)

    @property
    def current(self) -> Move:
        return self.moves[-1]

    @property
    def ref(self) -> ReleaseRef:
        return self.line.ref(self.current.release_id)

    def stays(self) -> list[Stay]:
        """Oldest first. Two moves in a row to one release are one stay."""
        found: list[Stay] = []
        for move in self.moves:
            if found and found[-1].release_id == move.release_id:
                continue
            if found:
                ended = {"until": move.at, "withdrawn": move.action == "rollback"}
                found[-1] = found[-1].model_copy(update=ended)
            found.append(Stay(release_id=move.release_id, since=move.at, until=None, withdrawn=False))
        return found

    def ladder(self) -> list[str]:
        """Releases to roll back through, the current one last: a promotion climbs, a rollback comes down again."""
        rungs: list[str] = []
        for move in self.moves:
            if move.action == "rollback" and move.release_id in rungs:
                while rungs[-1] != move.release_id:
                    rungs.pop()
            elif not rungs or rungs[-1] != move.release_id:
                rungs.append(move.release_id)
        return rungs

    def with_move(self, move: Move) -> Channel:
        return Channel.model_validate({**self.model_dump(), "moves": (*self.moves, move)})


def channel_bytes(channel: Channel) -> bytes:
    return channel.model_dump_json(indent=1).encode() + b"\n"


def read_channel(data: bytes, line: Line, name: str, where: str) -> Channel:
    """Raises :class:`RegistryError` for a document that is damaged, edited, or of another place."""
    try:
        channel = Channel.model_validate_json(data)
    except ValidationError as error:
        raise RegistryError(f"{where} is no channel: {error.errors(include_url=False)[0]['msg']}") from None
    if (channel.line, channel.channel) != (line, name):
        raise RegistryError(f"{where} has been changed: its content is that of {channel.line} {channel.channel}")
    return channel
