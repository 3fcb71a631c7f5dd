"""What ``trtllm-build`` of each release accepts, so that a wrong option is refused before a GPU is asked for.

``build_options.json`` holds one table a release: option → kind, choices, default, aliases. 0.8 to 0.17 were read by
running each release's own argument parser; 1.0 and 1.2 were transcribed from its source. The command was removed after
1.3.0rc20.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from recipes.errors import BadRequest, Problem, nearest

TABLES = Path(__file__).parent / "build_options.json"
LAST_RELEASE = (1, 3)
"""The first line without ``trtllm-build`` is the one after this."""

OptionValue = str | int | float | bool | tuple[str, ...]
Options = Mapping[str, OptionValue]
Version = tuple[int, ...]


@dataclass(frozen=True)
class Option:
    name: str
    kind: Literal["flag", "int", "float", "str"]
    choices: tuple[str, ...] = ()
    default: OptionValue | None = None
    aliases: tuple[str, ...] = ()
    many: bool = False
    """Takes one or more values."""


@dataclass(frozen=True)
class Table:
    """The options of one release."""

    release: str
    options: Mapping[str, Option]

    def find(self, name: str) -> Option | None:
        """By name or alias."""
        if name in self.options:
            return self.options[name]
        return next((option for option in self.options.values() if name in option.aliases), None)


REPLACED = {
    "max_output_len": "max_seq_len, which is input and output together (max_input_len + max_output_len)",
    "paged_kv_cache": "kv_cache_type: paged (for enable) or continuous (for disable)",
    "timing_cache": "input_timing_cache and output_timing_cache",
    "tp_size": "the tensor parallel size given when the checkpoint was converted",
    "pp_size": "the pipeline parallel size given when the checkpoint was converted",
    "cp_size": "the context parallel size given when the checkpoint was converted",
    "auto_parallel": "tensor and pipeline parallel sizes given when the checkpoint was converted",
    "gpus_per_node": "nothing: it went with auto_parallel",
    "cluster_key": "nothing: it went with auto_parallel",
    "enable_xqa": "nothing: the kernel is chosen by itself",
    "multi_block_mode": "nothing: it is chosen while serving",
    "use_custom_all_reduce": "nothing: the all-reduce strategy is chosen by itself",
    "strongly_typed": "nothing: networks are always strongly typed",
    "weight_only_precision": "the quantization of the checkpoint",
    "use_context_fmha_for_generation": "nothing",
    "context_fmha_fp32_acc": "nothing: accumulation is chosen by itself",
    "attention_qk_half_accumulation": "nothing: accumulation is chosen by itself",
    "builder_opt": "nothing",
    "builder_force_num_profiles": "multiple_profiles",
    "lookup_plugin": "nothing",
}
"""Options that a release took away → what does their work now."""
ELSEWHERE = {
    "use_gemm_plugin": "gemm_plugin",
    "use_gpt_attention_plugin": "gpt_attention_plugin",
    "enable_context_fmha": "context_fmha",
    "use_inflight_batching": "nothing: packed input and a paged KV cache, the defaults, are what it needs",
    "world_size": "a target with so many GPUs (CARDxN:engine)",
    "use_weight_only": "scheme: int8-weight-only",
    "use_smooth_quant": "scheme: int8",
    "int8_kv_cache": "the variant's kv_cache",
    "fp8_kv_cache": "the variant's kv_cache",
    "enable_fp8": "scheme: fp8-static",
    "dtype": "engine.dtype",
    "model_dir": "source",
    "quant_ckpt_path": "a quantized source with scheme: none",
}
"""Flags of the example scripts that built engines before ``trtllm-build`` did → what does their work now."""


@cache
def tables() -> dict[Version, Table]:
    """Every release's table, oldest first."""
    raw = json.loads(TABLES.read_text(encoding="utf-8"))
    found: dict[Version, Table] = {}
    for release, options in raw.items():
        parsed = {
            name: Option(
                name=name,
                kind=entry["kind"],
                choices=tuple(entry.get("choices", ())),
                default=entry.get("default"),
                aliases=tuple(entry.get("aliases", ())),
                many=entry.get("nargs") == "+",
            )
            for name, entry in options.items()
        }
        found[parse_version(release)] = Table(release, parsed)
    return dict(sorted(found.items()))


def parse_version(text: str) -> Version:
    """``1.2.1``, ``0.17.0.post1`` or ``1.3.0rc20`` as numbers. Raises ValueError."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is no version")
    return tuple(int(part or 0) for part in match.groups())


def table_for(version: str, where: str = "tensorrt_llm") -> Table:
    """The table of a release: its own, or that of the newest listed release before it. Raises :class:`BadRequest`."""
    try:
        wanted = parse_version(version)
    except ValueError:
        raise BadRequest(Problem(where, repr(version), "a TensorRT-LLM release such as 1.2.1")) from None
    if wanted[:2] > LAST_RELEASE:
        raise BadRequest(
            Problem(where, version, "1.2.1 or older", "Later releases have no trtllm-build: use runtime: checkpoint")
        )
    known = [release for release in tables() if release <= wanted]
    if not known:
        raise BadRequest(Problem(where, version, f"{next(iter(tables().values())).release} or newer"))
    return tables()[known[-1]]


def problems_with_options(options: Options, version: str, where: str) -> Iterator[Problem]:
    """Everything that ``trtllm-build`` of that release would refuse, and what to write in its place."""
    table = table_for(version)
    for name, value in options.items():
        option = table.find(name)
        if option is None:
            yield _unknown(name, version, table, f"{where}.{name}")
        elif wrong := _wrong_value(option, value):
            yield Problem(f"{where}.{name}", f"{value!r}", wrong, f"As in TensorRT-LLM {version}")


def command_line(options: Options) -> list[str]:
    """The arguments for ``trtllm-build``. Flags that are false are left out."""
    arguments: list[str] = []
    for name, value in options.items():
        if value is False:
            continue
        arguments.append(f"--{name}")
        if isinstance(value, tuple):
            arguments += value
        elif value is not True:
            arguments.append(str(value))
    return arguments


def in_words(program: str, arguments: list[str]) -> str:
    """A command line to read and to paste."""
    return shlex.join([program, *arguments])


def _unknown(name: str, version: str, table: Table, where: str) -> Problem:
    releases = list(tables().values())
    had = [release.release for release in releases if release.find(name)]
    if not had and name in ELSEWHERE:
        return Problem(where, f"{name!r} belongs to another script of TensorRT-LLM", ELSEWHERE[name])
    if not had:
        return Problem(
            where, f"unknown option {name!r}", f"one of trtllm-build {version}'s", nearest(name, table.options)
        )
    here = next(place for place, release in enumerate(releases) if release.release == table.release)
    if parse_version(had[-1]) < parse_version(table.release):
        gone = releases[[release.release for release in releases].index(had[-1]) + 1].release
        instead = REPLACED.get(name, "nothing")
        return Problem(where, f"{name!r} was removed in TensorRT-LLM {gone} (pinned: {version})", instead)
    since = next(release.release for release in releases[here:] if release.find(name))
    return Problem(
        where, f"{name!r} came with TensorRT-LLM {since} (pinned: {version})", f"{since} or newer, or no such option"
    )


def _wrong_value(option: Option, value: OptionValue) -> str:
    """What was wanted, or ``""`` when the value will do."""
    match option.kind:
        case "flag":
            return "" if isinstance(value, bool) else "true or false"
        case "int":
            return "" if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
        case "float":
            return "" if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
        case "str":
            values = value if isinstance(value, tuple) else (value,)
            if option.choices and not all(str(one).lower() in map(str.lower, option.choices) for one in values):
                return f"one of {', '.join(option.choices)}"
            return "" if all(isinstance(one, str) for one in values) else "text"
