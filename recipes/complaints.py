"""Pydantic's validation errors in the words of the recipe: field path, value seen, value wanted, nearest right name."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from recipes.errors import Problem, nearest


def problems_of(
    error: ValidationError, model: type[BaseModel], data: object, place: Callable[[Sequence[str]], str]
) -> list[Problem]:
    """One :class:`Problem` an error. ``place`` turns a field path into where it was written."""
    return [_problem(detail, model, data, place) for detail in error.errors(include_url=False)]


def _problem(
    detail: ErrorDetails, model: type[BaseModel], data: object, place: Callable[[Sequence[str]], str]
) -> Problem:
    loc = _without_tags(detail["loc"], data)
    where, context = place(loc), detail.get("ctx", {})
    seen = _short(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            known = _fields_at(model, detail["loc"][:-1])
            return Problem(where, f"unknown key {loc[-1]!r}", "a known one", nearest(loc[-1], known))
        case "missing":
            return Problem(where, "missing", "a value", "Every recipe needs it." if len(loc) == 1 else "")
        case "union_tag_invalid":
            tags = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
            discriminator = context["discriminator"].strip("'")
            return Problem(
                place([*loc, discriminator]),
                repr(context["tag"]),
                f"one of {', '.join(tags)}",
                nearest(context["tag"], tags),
            )
        case "union_tag_not_found":
            discriminator = context["discriminator"].strip("'")
            return Problem(where, f"no {discriminator!r} in {seen}", f"a mapping with {discriminator!r}")
        case "literal_error":
            known = re.findall(r"'([^']*)'", context["expected"])
            value = detail["input"]
            hint = nearest(value, known) if isinstance(value, str) and len(known) > 1 else ""
            return Problem(where, seen, context["expected"], hint if hint.startswith("Did you mean") else "")
        case "value_error":
            return Problem(where, str(context["error"]), "")
        case "string_pattern_mismatch":
            return Problem(where, seen, f"text that matches {context['pattern']}")
        case "string_type":
            quoted = isinstance(detail["input"], int | float)
            return Problem(where, seen, f'text: "{detail["input"]}", in quotes' if quoted else "text")
        case _:
            return Problem(where, seen, _wanted(detail["msg"]))


def _wanted(message: str) -> str:
    for start in ("Input should be ", "Value should have ", "Tuple should have ", "Dictionary should have "):
        message = message.removeprefix(start)
    return message[:1].lower() + message[1:]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _without_tags(loc: Sequence[int | str], data: object) -> list[str]:
    """Drop the union tags that pydantic puts into its paths: they are no keys of the data."""
    path: list[str] = []
    for index, step in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(data, dict) and step in data:
            data = cast("dict[object, object]", data)[step]
            path.append(str(step))
        elif isinstance(data, list | tuple) and isinstance(step, int):
            data = cast("Sequence[object]", data)[step] if step < len(cast("Sequence[object]", data)) else None
            path.append(str(step))
        elif last and step != "[key]":
            path.append(str(step))
    return path


def _fields_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Field names of the model that stands at ``loc`` (pydantic's own path, tags included)."""
    here: Any = model
    for step in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[step].annotation if step in here.model_fields else here
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        here = _member(here, step)
    return list(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _member(annotation: Any, step: int | str) -> Any:
    """The union member whose tag is ``step``, or the annotation itself, freed of ``Annotated`` and ``None``."""
    members = [member for member in _members(annotation) if member is not types.NoneType]
    tagged = [member for member in members if step in _tags(member)]
    return tagged[0] if tagged else members[0] if len(members) == 1 else annotation


def _members(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "__metadata__"):
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _tags(member: Any) -> tuple[object, ...]:
    if not (isinstance(member, type) and issubclass(member, BaseModel)):
        return ()
    name = next((name for name in ("kind", "scheme", "method") if name in member.model_fields), None)
    note = member.model_fields[name].annotation if name else None
    return get_args(note) if get_origin(note) is Literal else ()
