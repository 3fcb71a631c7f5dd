"""Commands about channels: promote, rollback, history, policy."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.command_options import JSON, REGISTRY, open_registry, with_home

if TYPE_CHECKING:
    from artifacts.channel import Channel, Move
    from artifacts.home import Home
    from artifacts.promotion import Channels

POLICY = click.option(
    "--policy", type=click.Path(path_type=Path), help="Policy file, instead of $ENGINEWORKS_POLICY or the shipped one."
)
BY = click.option("--by", help="Who decides. Default: $ENGINEWORKS_BY, or the name of this account.")


@click.command()
@click.argument("release")
@click.option("--to", "channel", required=True, metavar="CHANNEL", help="candidate, staging, production, …")
@click.option("--override", metavar="REASON", help="Do it though the policy is not met; kept in the history for ever.")
@BY
@POLICY
@REGISTRY
@JSON
@with_home
def promote(
    release: str,
    channel: str,
    override: str | None,
    by: str | None,
    policy: Path | None,
    registry: str | None,
    home: Home,
    *,
    as_json: bool,
) -> None:
    """Point a channel at a release, if the policy's conditions are met. One atomic step."""
    from flows.progress import bytes_shown

    channels = open_channels(registry, home, policy)
    ref = channels.registry.find(release)
    with bytes_shown(f"check {ref.release_id}", quiet=as_json) as progress:
        after, moved = channels.promote(ref, channel, who(by), override, progress)
    if as_json:
        click.echo(json.dumps({"channel": channel, "release": str(ref), "moved": moved, **_row(after.current)}))
        return
    note = f" (override: {after.current.reason})" if moved and after.current.override else ""
    click.echo(f"{after.line} {channel}: {ref.release_id}{note}" if moved else f"{channel} points at {ref} already")


@click.command()
@click.argument("line", metavar="MODEL/VARIANT")
@click.option("--channel", default="production", show_default=True)
@click.option("--to", metavar="RELEASE", help="A release of the channel's past. Default: the one before.")
@click.option("--reason", default="", help="Kept in the history.")
@BY
@POLICY
@REGISTRY
@JSON
@with_home
def rollback(
    line: str,
    channel: str,
    to: str | None,
    reason: str,
    by: str | None,
    policy: Path | None,
    registry: str | None,
    home: Home,
    *,
    as_json: bool,
) -> None:
    """Point a channel back where it pointed before."""
    from artifacts.channel import parse_line

    channels = open_channels(registry, home, policy)
    after = channels.rollback(parse_line(line), channel, who(by), reason, to)
    if as_json:
        click.echo(json.dumps({"channel": channel, "release": str(after.ref), **_row(after.current)}))
    else:
        click.echo(f"{after.line} {channel}: back to {after.current.release_id}")


@click.command()
@click.argument("line", metavar="MODEL/VARIANT", required=False)
@click.option("--channel", help="Only this one.")
@REGISTRY
@JSON
@with_home
def history(line: str | None, channel: str | None, registry: str | None, home: Home, *, as_json: bool) -> None:
    """Every move of the channels: when, who, what, and why when the policy was overridden."""
    from artifacts.channel import parse_line
    from artifacts.promotion import channels_of

    there = open_registry(registry, home)
    found = [c for c in channels_of(there, parse_line(line) if line else None) if channel in (None, c.channel)]
    if as_json:
        rows = [
            {
                "line": str(c.line),
                "channel": c.channel,
                "current": c.current.release_id,
                "moves": list(map(_row, c.moves)),
            }
            for c in found
        ]
        click.echo(json.dumps({"registry": there.storage.url, "channels": rows}))
        return
    for entry in found:
        _print(entry)
    if not found:
        click.echo(f"No channel has been promoted to yet in {there.storage.url}.")


def open_channels(registry: str | None, home: Home, policy: Path | None) -> Channels:
    from artifacts.policy import load_policy
    from artifacts.promotion import Channels

    return Channels(open_registry(registry, home), load_policy(policy))


def who(given: str | None) -> str:
    return given or os.environ.get("ENGINEWORKS_BY") or getpass.getuser()


def _row(move: Move) -> dict[str, object]:
    return move.model_dump(mode="json", exclude={"nonce", "previous"})


def _print(channel: Channel) -> None:
    click.echo(f"{channel.line} {channel.channel} → {channel.current.release_id}")
    for move in reversed(channel.moves):
        why = f"  OVERRIDE: {move.reason}" if move.override else f"  {move.reason}" if move.reason else ""
        when = move.at.strftime("%Y-%m-%d %H:%M:%S")
        what = f"{move.action:<8}  {move.release_id}  {move.verdict:<8}  {move.by}{why}"
        click.echo(f"  {move.revision:>4}  {when}  {what}")
        for problem in move.unmet:
            click.echo(f"        not met: {problem}")
