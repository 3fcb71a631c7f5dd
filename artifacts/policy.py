"""What each channel wants to see. The shipped policy is ``policy.yaml``."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from artifacts.digest import digest_json
from recipes.errors import BadRequest, Problem, nearest
from recipes.loading import read_document, validate
from recipes.models import Slug
from recipes.strict import Strict

SHIPPED = Path(__file__).parent / "policy.yaml"
Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "ANOMALOUS", "NOT RUN"]


class ChannelPolicy(Strict):
    """Conditions of one channel. Each is lifted by an override, but for ``never``."""

    verdicts: Annotated[tuple[Outcome, ...], Field(min_length=1)] = ("PASS",)
    """Verdicts that may enter."""
    never: tuple[Outcome, ...] = ()
    """Verdicts that may not enter even with an override."""
    after: Slug | None = None
    """Channel that must have pointed at the release before, and not been rolled back from it."""
    soak_hours: Annotated[float, Field(ge=0)] = 0
    """How long without a break it must have been what ``after`` points at."""
    signed: bool = False
    """By a trusted key that has not expired."""
    evidence: tuple[str, ...] = ()
    """Patterns of files that the release must hold, ``evaluation/benchmark*.json``."""
    read_every_byte: bool = False
    """Compare all bytes with the manifest. Else only that every file is there, with its size and recorded hash."""

    @model_validator(mode="after")
    def _consistent(self) -> ChannelPolicy:
        if both := [verdict for verdict in self.verdicts if verdict in self.never]:
            raise ValueError(f"{both[0]} may enter (verdicts) and may never enter (never)")
        if self.soak_hours and self.after is None:
            raise ValueError("soak_hours without after: say in which channel")
        return self


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


class TrustedKey(Strict):
    """A public key whose signatures count."""

    public_key: str
    """Path of a PEM file, relative to the policy."""
    not_after: Annotated[date, BeforeValidator(_text)] | None = None
    """Last day on which its signatures are taken."""


class Policy(Strict):
    """All channels, and whose signatures count."""

    channels: Annotated[dict[Slug, ChannelPolicy], Field(min_length=1)]
    trusted_keys: dict[Slug, TrustedKey] = {}

    @model_validator(mode="after")
    def _names_meet(self) -> Policy:
        for name, wants in self.channels.items():
            if wants.after is not None and (wants.after == name or wants.after not in self.channels):
                raise ValueError(f"{name} comes after {wants.after!r}, which is not another channel of this policy")
            if wants.signed and not self.trusted_keys:
                raise ValueError(f"{name} wants a signature, and trusted_keys names no key")
        return self

    @property
    def digest(self) -> str:
        return digest_json(self)

    def wants(self, channel: str) -> ChannelPolicy:
        """Raises :class:`BadRequest` for a channel that is not in the policy."""
        if channel not in self.channels:
            raise BadRequest(Problem("channel", repr(channel), "one of the policy's", nearest(channel, self.channels)))
        return self.channels[channel]


def load_policy(path: Path | None = None) -> Policy:
    """From ``path``, else ``$ENGINEWORKS_POLICY``, else the shipped one. Raises :class:`BadRequest`."""
    named = os.environ.get("ENGINEWORKS_POLICY")
    chosen = path or (Path(named) if named else SHIPPED)
    policy = validate(Policy, read_document(chosen))
    keys = {
        name: key.model_copy(update={"public_key": str(chosen.parent / Path(key.public_key).expanduser())})
        for name, key in policy.trusted_keys.items()
    }
    return policy.model_copy(update={"trusted_keys": keys})
