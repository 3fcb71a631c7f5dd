"""Write the commit that a Hub revision stands for now into the recipe, leaving every other byte as it is."""

from __future__ import annotations

import re
from pathlib import Path

from artifacts.files import write_atomic
from builders.hub import resolve_commit
from recipes.errors import BadRequest, Problem
from recipes.loading import load_recipe
from recipes.sources import HubSource

SHORT = re.compile(
    r"(?P<head>^source:\s*['\"]?hf:(?P<repo>[\w./-]+?))(?:@[\w./-]+)?(?P<tail>['\"]?\s*(?:#.*)?$)", re.MULTILINE
)
REVISION = re.compile(r"(?P<head>^(?P<indent>[ \t]+)revision:[ \t]*)['\"]?[\w./-]+['\"]?(?P<tail>.*)$", re.MULTILINE)
REPO = re.compile(r"(?P<line>^(?P<indent>[ \t]+)repo:.*$)", re.MULTILINE)


def pin(path: Path) -> tuple[str, bool]:
    """The commit, and whether the file was changed. Raises :class:`BadRequest` for a source that is not on the Hub."""
    source = load_recipe(path).source
    if not isinstance(source, HubSource):
        raise BadRequest(
            Problem(f"{path} source", f"a {source.kind}: source", "an hf: source", "Other sources need no pin")
        )
    commit = resolve_commit(source.repo, source.revision)
    text = path.read_text(encoding="utf-8")
    pinned = pinned_text(text, source.repo, commit)
    if pinned is None:
        raise BadRequest(
            Problem(f"{path} source", "not written in this file", "the source to pin", "Pin the recipe it extends")
        )
    if pinned != text:
        write_atomic(path, pinned.encode())
    if load_recipe(path).source != source.model_copy(update={"revision": commit}):
        write_atomic(path, text.encode())
        raise BadRequest(
            Problem(f"{path} source", "written in a way pin can't edit", f"revision: {commit}", "Write it by hand")
        )
    return commit, pinned != text


def pinned_text(text: str, repo: str, commit: str) -> str | None:
    """The recipe's text with the commit in it, or None when the source is not there."""
    if (short := SHORT.search(text)) and short["repo"] == repo:
        return SHORT.sub(rf"\g<head>@{commit}\g<tail>", text, count=1)
    block = re.search(r"^source:[ \t]*(?:#.*)?\n(?:(?:[ \t]+.*)?\n)+", text, re.MULTILINE)
    if block is None:
        return None
    found = block.group()
    if REVISION.search(found):
        changed = REVISION.sub(rf"\g<head>{commit}\g<tail>", found, count=1)
    elif REPO.search(found):
        changed = REPO.sub(rf"\g<line>\n\g<indent>revision: {commit}", found, count=1)
    else:
        return None
    return text.replace(found, changed, 1)
