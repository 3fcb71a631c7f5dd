"""Channels: evidence, compare-and-swap, rollback and the record; over a directory and a real S3 server."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from artifacts.channel import Channel, Line, Move, channel_bytes
from artifacts.digest import digest_json
from artifacts.policy import ChannelPolicy, Policy, load_policy
from artifacts.promotion import Channels, channels_of, current
from artifacts.registry import Registry
from artifacts.storage import Storage
from artifacts.storage_file import FileStorage
from recipes.errors import BadRequest, RegistryError
from tests.artifacts.releases import published, verdict

OPEN = Policy(
    channels={
        "candidate": ChannelPolicy(verdicts=("PASS", "NOT RUN")),
        "staging": ChannelPolicy(verdicts=("PASS", "NOT RUN"), after="candidate"),
        "production": ChannelPolicy(after="staging", never=("NOT RUN",), read_every_byte=True),
    }
)
START = datetime(2026, 1, 1, tzinfo=UTC)
LINE = Line(model="m", variant="v")


@pytest.fixture
def registry(storage: Storage) -> Registry:
    return Registry(storage)


def test_up_through_the_channels_and_back(registry: Registry, tmp_path: Path) -> None:
    first, second = (published(registry, tmp_path / name, name) for name in ("one", "two"))
    channels = Channels(registry, OPEN)
    with pytest.raises(BadRequest, match=r"staging: never pointed at it.*Promote it to staging"):
        channels.promote(first, "production", "ann")
    for ref in (first, second):
        for name in ("candidate", "staging", "production"):
            assert channels.promote(ref, name, "ann")[1] is True
    assert channels.promote(second, "production", "bob")[1] is False  # said so; no move is recorded
    assert current(registry, LINE, "production") == second
    after = channels.rollback(LINE, "production", "bob", "slow")
    assert (after.ref, after.current.action, after.current.reason) == (first, "rollback", "slow")
    with pytest.raises(BadRequest, match="pointed at nothing before"):
        channels.rollback(LINE, "production", "bob")
    forward = channels.rollback(LINE, "production", "bob", to=second.release_id[:8])
    assert forward.ref == second
    assert [(move.revision, move.by) for move in forward.moves] == [(1, "ann"), (2, "ann"), (3, "bob"), (4, "bob")]
    assert {channel.channel for channel in channels_of(registry)} == {"candidate", "staging", "production"}


def test_what_was_not_judged_never_enters_production(registry: Registry, tmp_path: Path) -> None:
    ref = published(registry, tmp_path / "r", "x", verdict=verdict("NOT RUN"))
    channels = Channels(registry, OPEN)
    for name in ("candidate", "staging"):
        channels.promote(ref, name, "ann")
    for override in (None, "the customer waits"):
        with pytest.raises(BadRequest, match=r"NOT RUN.*No override"):
            channels.promote(ref, "production", "ann", override)
    assert channels.channel(LINE, "production") is None


def test_an_override_is_recorded_for_ever(registry: Registry, tmp_path: Path) -> None:
    first, second = (published(registry, tmp_path / name, name) for name in ("one", "two"))
    channels = Channels(registry, OPEN)
    with pytest.raises(BadRequest, match="no reason"):
        channels.promote(first, "production", "ann", "  ")
    channels.promote(first, "production", "ann", "the fleet is down")
    for ref in (second, first, second):
        channels.promote(ref, "candidate", "ann")
        channels.promote(ref, "staging", "ann")
        channels.promote(ref, "production", "ann")
    document = channels.channel(LINE, "production")
    assert document is not None
    told = document.moves[0]
    assert (told.override, told.reason) == (True, "the fleet is down")
    assert told.unmet == ("staging: never pointed at it; wanted a stay in staging first. Promote it to staging.",)
    assert not any(move.override for move in document.moves[1:])
    key = LINE.key("production")
    without = document.model_dump(mode="json") | {"moves": document.model_dump(mode="json")["moves"][1:]}
    registry.storage.delete(key)
    registry.storage.create(key, json.dumps(without).encode())
    with pytest.raises(RegistryError, match="the history has been changed"):
        channels.channel(LINE, "production")


def test_of_many_promoters_one_wins(registry: Registry, tmp_path: Path) -> None:
    refs = [published(registry, tmp_path / str(n), str(n)) for n in range(6)]
    channels = Channels(registry, OPEN)
    for _round in range(3):

        def attempt(n: int) -> str:
            try:
                return Channels(registry, OPEN).promote(refs[n], "candidate", str(n))[0].current.nonce
            except RegistryError as error:
                return "" if "somebody else was first" in str(error) else str(error)

        with ThreadPoolExecutor(6) as pool:
            won = {nonce for nonce in pool.map(attempt, range(6)) if nonce}
        document = channels.channel(LINE, "candidate")
        assert document is not None
        assert won <= {move.nonce for move in document.moves}
        assert [move.revision for move in document.moves] == list(range(1, len(document.moves) + 1))
    assert len(document.moves) >= 3


def test_a_lost_answer_is_not_taken_for_a_lost_race(registry: Registry, tmp_path: Path) -> None:
    """The write lands, the connection breaks, the client's retry is refused by the write's own effect."""
    first, second = (published(registry, tmp_path / name, name) for name in ("one", "two"))

    class Retrying:
        def __init__(self, inner: Storage) -> None:
            self.inner = inner

        def create(self, key: str, data: bytes) -> bool:
            self.inner.create(key, data)
            return self.inner.create(key, data) if key.startswith("channels/") else True

        def replace(self, key: str, data: bytes, tag: str) -> bool:
            self.inner.replace(key, data, tag)
            return self.inner.replace(key, data, tag)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    channels = Channels(Registry(Retrying(registry.storage)), OPEN)  # type: ignore[arg-type]
    channels.registry.storage.lacks_conditions = lambda: ""  # type: ignore[method-assign]
    for ref in (first, second):
        assert channels.promote(ref, "candidate", "ann")[0].ref == ref
    document = channels.channel(LINE, "candidate")
    assert document is not None
    assert len(document.moves) == 2


def test_a_release_deleted_or_damaged_by_hand(registry: Registry, tmp_path: Path) -> None:
    first, second, third = (published(registry, tmp_path / name, name) for name in ("one", "two", "three"))
    channels = Channels(registry, OPEN)
    for ref in (first, second, third):
        channels.promote(ref, "candidate", "ann")
    registry.storage.delete(f"{second.prefix}/weights/model.safetensors")
    with pytest.raises(RegistryError, match=r"damaged in the registry: weights/model.safetensors"):
        channels.rollback(LINE, "candidate", "ann")
    assert channels.rollback(LINE, "candidate", "ann", to=first.release_id).ref == first
    registry.storage.delete(f"{first.prefix}/manifest.json")
    with pytest.raises(RegistryError, match=r"manifest\.json is missing"):
        registry.release(current(registry, LINE, "candidate"))


class Ignorant:
    """A server that takes conditions and ignores them, as some S3 look-alikes do."""

    def __init__(self, inner: Storage, ignores: str) -> None:
        self.inner, self.ignores = inner, ignores

    def create(self, key: str, data: bytes) -> bool:
        if self.ignores == "create":
            self.inner.delete(key)
        return self.inner.create(key, data)

    def replace(self, key: str, data: bytes, tag: str) -> bool:
        self.inner.delete(key)
        return self.inner.create(key, data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@pytest.mark.s3
@pytest.mark.parametrize(("ignores", "says"), [("create", "If-None-Match"), ("replace", "If-Match was ignored")])
def test_a_server_without_conditional_writes_holds_no_channels(
    s3_server: object, tmp_path: Path, ignores: str, says: str
) -> None:
    from artifacts.storage import open_storage
    from artifacts.storage_s3 import S3Storage

    inner = open_storage(f"s3://releases/{tmp_path.name}-{ignores}")
    storage = Ignorant(inner, ignores)
    storage.lacks_conditions = lambda: S3Storage.lacks_conditions(storage)  # type: ignore[attr-defined, arg-type]
    registry = Registry(storage)  # type: ignore[arg-type]
    ref = published(Registry(inner), tmp_path / "r", "x")
    with pytest.raises(RegistryError, match=f"can't hold channels.*{says}"):
        Channels(registry, OPEN).promote(ref, "candidate", "ann")
    assert inner.lacks_conditions() == ""
    assert list(inner.list("probes/")) == []


def moves(*steps: tuple[str, str, int]) -> Channel:
    """(action, release, hours since the first)."""
    made: list[Move] = []
    for action, release, hours in steps:
        made.append(
            Move.model_validate(
                {
                    "revision": len(made) + 1,
                    "action": action,
                    "release_id": release * 16,
                    "by": "x",
                    "verdict": "PASS",
                    "at": START + timedelta(hours=hours),
                    "policy": "0" * 64,
                    "nonce": "0" * 32,
                    "previous": digest_json(made[-1]) if made else None,
                }
            )
        )
    return Channel(model="m", variant="v", channel="c", moves=tuple(made))


def test_repeated_rollbacks_walk_back() -> None:
    steps = (("promote", "a", 0), ("promote", "b", 1), ("promote", "c", 2), ("rollback", "b", 3))
    assert [rung[0] for rung in moves(*steps).ladder()] == ["a", "b"]
    assert [rung[0] for rung in moves(*steps, ("rollback", "a", 4)).ladder()] == ["a"]
    assert [rung[0] for rung in moves(*steps, ("promote", "d", 4)).ladder()] == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("steps", "now", "says"),
    [
        ((("promote", "a", 0),), 30, None),
        ((("promote", "a", 0),), 20, "pointed at it for 20 h; wanted 24 h"),
        ((("promote", "a", 0), ("promote", "b", 25)), 30, None),
        ((("promote", "a", 0), ("promote", "b", 20)), 90, "for 20 h"),
        ((("promote", "b", 0), ("promote", "a", 1), ("rollback", "b", 40)), 90, "was rolled back"),
        ((("promote", "b", 0), ("promote", "a", 1), ("rollback", "b", 40), ("promote", "a", 50)), 90, None),
    ],
)
def test_soak(steps: tuple[tuple[str, str, int], ...], now: int, says: str | None) -> None:
    from artifacts.evidence import _soaked

    class Named:
        release_id = "a" * 16

    found = list(
        _soaked(
            Named(),
            "staging",
            timedelta(hours=24),
            moves(*steps),
            START + timedelta(hours=now),
        )  # type: ignore[arg-type]
    )
    assert (found == []) if says is None else (says in str(found[0]))


def test_the_shipped_policy_keeps_unjudged_releases_from_production() -> None:
    policy = load_policy()
    assert policy.channels["production"].verdicts == ("PASS",)
    assert "NOT RUN" in policy.channels["production"].never
    assert policy.channels["production"].soak_hours == 24


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("channels: {c: {verdict: [PASS]}}", "unknown key 'verdict'"),
        ("channels: {c: {soak_hours: 2}}", "soak_hours without after"),
        ("channels: {c: {after: d}}", "not another channel"),
        ("channels: {c: {signed: true}}", "names no key"),
        ("channels: {c: {verdicts: [NOT RUN], never: [NOT RUN]}}", "never enter"),
    ],
)
def test_policies_that_make_no_sense(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(BadRequest, match=says):
        load_policy(path)


def test_a_channel_file_of_another_place_is_refused(registry: Registry) -> None:
    registry.storage.create("channels/m/v/production.json", channel_bytes(moves(("promote", "a", 0))))
    with pytest.raises(RegistryError, match="has been changed"):
        current(registry, LINE, "production")


def test_commands(tmp_path: Path) -> None:
    from tests.flows.test_cli import engineworks

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return engineworks(*arguments, home=tmp_path)

    registry = Registry(FileStorage(tmp_path / "registry"))
    first, second = (published(registry, tmp_path / name, name) for name in ("one", "two"))
    told = run("promote", first.release_id, "--to", "production")
    assert told.returncode == 2
    assert "Promote it to staging" in told.stderr
    assert run("promote", first.release_id, "--to", "prodution").stderr.count("Did you mean 'production'?") == 1
    for ref in (first, second):
        moved = run("promote", ref.release_id, "--to", "production", "--override", "first day", "--by", "ann", "--json")
        assert json.loads(moved.stdout)["override"] is True
    assert json.loads(run("pull", "m/v", str(tmp_path / "p"), "--channel", "production", "--json").stdout)[
        "release"
    ] == str(second)
    assert "back to " + first.release_id in run("rollback", "m/v", "--reason", "slow").stdout
    text = run("history", "m/v").stdout
    assert "OVERRIDE: first day" in text
    assert "slow" in text
    assert run("pull", "m/v", "--channel", "staging").returncode == 2
