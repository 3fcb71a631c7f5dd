"""Bring a ``trtllm-build`` command of an older tutorial into today's options, saying what was changed and why."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from builders.trtllm.options import ELSEWHERE, REPLACED, Option, OptionValue, Table, table_for, tables
from recipes.errors import BadRequest, Problem, nearest

OWN = ("checkpoint_dir", "output_dir", "model_config", "build_config")
"""What Engineworks gives itself."""


@dataclass(frozen=True)
class Imported:
    options: dict[str, OptionValue]
    """For a recipe's ``engine.options``."""
    notes: tuple[str, ...]
    """What was renamed, dropped or left to Engineworks."""


def import_command(command: str, version: str) -> Imported:
    """Read a shell command. Raises :class:`BadRequest` when it is not one that any release would take."""
    given = _parse(command)
    table = table_for(version)
    options: dict[str, OptionValue] = {}
    notes: list[str] = []
    for name, words in given.items():
        if name in OWN:
            notes.append(f"--{name} {' '.join(words)}: left out, Engineworks names its own directories")
        elif option := table.find(name):
            options[option.name] = _value(option, words)
            if option.name != name:
                notes.append(f"--{name}: now called {option.name}")
        else:
            notes.append(_translate(name, words, given, options, version))
    if options.get("gemm_plugin") in ("float16", "bfloat16"):
        notes.append(f"gemm_plugin {options['gemm_plugin']}: kept; `auto` follows the model's own type")
    return Imported(options, tuple(notes))


def _parse(command: str) -> dict[str, list[str]]:
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError as error:
        raise BadRequest(
            Problem("command", f"not a shell command ({error})", "trtllm-build --option value …")
        ) from None
    if not words or words[0].rpartition("/")[2] != "trtllm-build":
        raise BadRequest(
            Problem("command", repr(words[0]) if words else "nothing", "a command that starts with trtllm-build")
        )
    given: dict[str, list[str]] = {}
    for word in words[1:]:
        if word.startswith("--"):
            name, separator, value = word[2:].partition("=")
            given[name] = [value] if separator else []
        elif given:
            given[next(reversed(given))].append(word)
        else:
            raise BadRequest(Problem("command", repr(word), "an option (--name) before any value"))
    return given


def _translate(
    name: str, words: list[str], given: dict[str, list[str]], options: dict[str, OptionValue], version: str
) -> str:
    """Put an option that this release no longer has into today's terms. Returns the note on it."""
    old = _newest_with(name)
    if old is None and name in ELSEWHERE:
        return f"--{name}: dropped, it belongs to another script of TensorRT-LLM; instead: {ELSEWHERE[name]}"
    if old is None:
        every = {option for table in tables().values() for option in table.options}
        raise BadRequest(
            Problem(f"--{name}", "an option of no release", "an option of trtllm-build", nearest(name, every))
        )
    match name:
        case "max_output_len":
            inputs = int(_first(given.get("max_input_len"), "1024", "max_input_len"))
            outputs = int(_first(words, "1024", name))
            options["max_seq_len"] = inputs + outputs
            return f"--max_output_len {outputs}: now max_seq_len {inputs + outputs}, input and output together"
        case "paged_kv_cache":
            kind = "continuous" if words == ["disable"] else "paged"
            options["kv_cache_type"] = kind
            return f"--paged_kv_cache: now kv_cache_type {kind}"
        case "timing_cache":
            options["input_timing_cache"] = options["output_timing_cache"] = _first(words, "model.cache", name)
            return "--timing_cache: now input_timing_cache and output_timing_cache"
        case _:
            return f"--{name}: dropped, {version} has no such option; instead: {REPLACED.get(name, 'nothing')}"


def _newest_with(name: str) -> Table | None:
    return next((table for table in reversed(tables().values()) if table.find(name)), None)


def _first(words: list[str] | None, default: str, name: str) -> str:
    if words and name != "timing_cache" and not words[0].isdigit():
        raise BadRequest(Problem(f"--{name}", repr(words[0]), "a whole number"))
    return words[0] if words else default


def _value(option: Option, words: list[str]) -> OptionValue:
    if option.kind == "flag":
        return True
    if not words:
        raise BadRequest(Problem(f"--{option.name}", "no value", "a value"))
    if option.many:
        return tuple(words)
    if option.kind == "int":
        return int(_first(words, "", option.name))
    return float(words[0]) if option.kind == "float" else words[0]
