"""What several commands share. Imports wait until a command needs them: ``--help`` must be instant."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from artifacts.home import Home
    from artifacts.registry import Registry
    from artifacts.release import ReleaseRef

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document to stdout.")
HOME = click.option(
    "--home", "home_path", type=click.Path(path_type=Path), help="Instead of $ENGINEWORKS_HOME (~/.engineworks)."
)
REGISTRY = click.option(
    "--registry", metavar="URL", help="s3://BUCKET/PREFIX or file:///DIR, instead of $ENGINEWORKS_REGISTRY."
)


def with_home(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command ``home``, set for every process it starts."""

    @functools.wraps(command)
    def wrapped(*args: Any, home_path: Path | None, **kwargs: Any) -> None:
        from artifacts.home import Home

        home = Home.find(home_path)
        os.environ["ENGINEWORKS_HOME"] = str(home.root)
        command(*args, home=home, **kwargs)

    return HOME(wrapped)


def open_registry(url: str | None, home: Home) -> Registry:
    from artifacts.registry import Registry
    from artifacts.storage import open_storage

    return Registry(open_storage(url or home.registry_url))


def find(registry: Registry, reference: str, channel: str | None) -> ReleaseRef:
    """The release that a reference names, or that a channel of MODEL/VARIANT points at. Raises :class:`BadRequest`."""
    if channel is None:
        return registry.find(reference)
    from artifacts.channel import parse_line
    from artifacts.promotion import current

    return current(registry, parse_line(reference), channel)
