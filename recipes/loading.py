"""From YAML on disk to a typed :class:`Recipe`: ``extends``, ``--set`` and errors that name file, line and field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from recipes.complaints import problems_of
from recipes.errors import BadRequest, Problem
from recipes.models import Recipe

Model = TypeVar("Model", bound=BaseModel)
Loc = tuple[str, ...]

PATH_FIELDS: tuple[Loc, ...] = (
    ("source", "path"),
    ("source", "file"),
    ("calibration", "data", "file"),
    ("evaluation", "include"),
)
"""Fields that hold a path. A relative one starts at the folder of the file that says it."""


@dataclass
class Document:
    """Plain data, and where each field of it was written."""

    data: dict[str, Any]
    places: dict[Loc, str] = field(default_factory=dict[Loc, str])

    def place(self, loc: Sequence[str]) -> str:
        """``file:line field.path``: the deepest place known for a field (a missing one has its parent's)."""
        known = next(
            (self.places[tuple(loc[:n])] for n in range(len(loc), -1, -1) if tuple(loc[:n]) in self.places), ""
        )
        return f"{known} {'.'.join(loc)}".strip()


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, what it extends, and ``field.path=value`` overrides.

    Raises :class:`BadRequest` with all problems.
    """
    document = read_document(path)
    for override in overrides:
        _override(document, override)
    return validate(Recipe, document)


def validate(model: type[Model], document: Document) -> Model:
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise BadRequest(problems_of(error, model, document.data, document.place)) from None


def read_document(path: Path, _chain: tuple[Path, ...] = ()) -> Document:
    """Read one YAML file and, under it, the file it ``extends``. Mappings merge key by key, anything else replaces."""
    tree = _read_yaml(path)
    base_name = tree.pop("extends", None)
    data = _plain(tree)
    own = Document(data, {(): str(path)})
    _note_places(tree, (), path, own.places)
    _resolve_paths(data, path.parent)
    if base_name is None:
        return own
    if not isinstance(base_name, str):
        raise BadRequest(Problem(f"{path} extends", f"{base_name!r}", "the path of one recipe"))
    base_path = path.parent / base_name
    chain = (*_chain, path.resolve())
    if base_path.resolve() in chain:
        raise BadRequest(
            Problem(f"{path} extends", f"{base_name!r} leads back here", "a recipe that does not extend this")
        )
    base = read_document(base_path, chain)
    return Document(_merge(base.data, own.data), {**base.places, **own.places})


def _read_yaml(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = ", ".join(sorted(p.name for p in path.parent.glob("*.yaml"))) if path.parent.is_dir() else ""
        raise BadRequest(
            Problem(str(path), "no such file", "a recipe", f"There: {beside}." if beside else "")
        ) from None
    except IsADirectoryError:
        raise BadRequest(Problem(str(path), "a directory", "one recipe file")) from None
    except OSError as error:
        raise BadRequest(Problem(str(path), f"can't be read ({error.strerror})", "a readable file")) from None
    except UnicodeDecodeError:
        raise BadRequest(Problem(str(path), "not UTF-8 text", "a YAML file")) from None
    try:
        tree = YAML(typ="rt").load(text)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadRequest(Problem(f"{path}{line}", f"not YAML: {what}", "a YAML mapping of recipe fields")) from None
    if not isinstance(tree, CommentedMap):
        kind = "nothing" if tree is None else f"a {type(tree).__name__}"  # pyright: ignore[reportUnknownArgumentType]
        raise BadRequest(Problem(str(path), kind, "a YAML mapping of recipe fields"))
    return tree


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, list):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    for plain in (bool, int, float, str):  # ruamel's own scalar types keep the notation; we want the value
        if isinstance(value, plain):
            return plain(value)
    return value


def _note_places(tree: Any, loc: Loc, path: Path, places: dict[Loc, str]) -> None:
    for key, value in tree.items():  # pyright: ignore[reportUnknownVariableType]
        here = (*loc, str(key))  # pyright: ignore[reportUnknownArgumentType]
        places[here] = f"{path}:{tree.lc.key(key)[0] + 1}"  # pyright: ignore[reportUnknownMemberType]
        if isinstance(value, CommentedMap):
            _note_places(value, here, path, places)


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    source = data.get("source")
    if isinstance(source, str):
        kind, _, rest = source.partition(":")
        if kind in ("path", "gguf") and rest and "==" not in rest.partition("/")[0]:
            data["source"] = f"{kind}:{folder / Path(rest).expanduser()}"
    for *parents, name in PATH_FIELDS:
        holder: Any = data
        for parent in parents:
            holder = holder.get(parent) if isinstance(holder, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(holder, dict) and isinstance(holder.get(name), str) and not holder.get("package"):  # pyright: ignore[reportUnknownMemberType]
            holder[name] = str(folder / Path(holder[name]).expanduser())  # pyright: ignore[reportUnknownArgumentType]
    targets: Any = data.get("targets")
    if isinstance(targets, list):
        data["targets"] = [_resolved_card(name, folder) for name in cast("list[Any]", targets)]


def _resolved_card(name: Any, folder: Path) -> Any:
    return str(folder / name) if isinstance(name, str) and name.endswith((".yaml", ".yml")) else name


def _merge(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    old, new = cast("dict[str, Any]", base), cast("dict[str, Any]", over)
    # A mapping that names another kind or scheme is another thing: fields of the old one would not fit it.
    if any(tag in new and old.get(tag, new[tag]) != new[tag] for tag in ("kind", "scheme")):
        return new
    return {**old, **{key: _merge(old[key], value) if key in old else value for key, value in new.items()}}


def _override(document: Document, text: str) -> None:
    name, separator, raw = text.partition("=")
    loc = tuple(name.split("."))
    if not separator or not all(loc):
        raise BadRequest(Problem(f"--set {text}", "no value" if not separator else "an empty name", "FIELD.PATH=VALUE"))
    try:
        value: Any = _plain(YAML(typ="safe").load(raw))  # pyright: ignore[reportUnknownMemberType]
    except YAMLError:
        raise BadRequest(Problem(f"--set {text}", f"{raw!r} is not a YAML value", "FIELD.PATH=VALUE")) from None
    patch: Any = value
    for part in reversed(loc):
        patch = {part: patch}
    _resolve_paths(patch, Path())
    document.data = _merge(document.data, patch)
    for depth in range(1, len(loc) + 1):
        document.places.setdefault(loc[:depth], "--set")
    document.places[loc] = "--set"
