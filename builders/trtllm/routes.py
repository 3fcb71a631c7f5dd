"""Who turns the checkpoint into TensorRT-LLM's own format, and by which command.

Route A, ModelOpt's ``export_tensorrt_llm_checkpoint``, runs on any machine. Route B, the release's own
``convert_checkpoint.py`` and ``quantize.py``, runs where TensorRT-LLM is installed (its container has them under
``/app/tensorrt_llm``). ``convert_options.json`` holds their options, read release by release from the scripts' parsers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from builders.model_facts import ModelFacts
from builders.trtllm.options import parse_version
from recipes.engine import EngineBuild
from recipes.errors import Problem
from recipes.strict import Strict
from recipes.targets import TargetCard
from recipes.variants import Awq, Int8, Variant

TABLES = Path(__file__).parent / "convert_options.json"
FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen",
    "Qwen3ForCausalLM": "qwen",
}
"""Architecture → the converter that reads it."""
PREQUANTIZED = ("gptq", "awq")
FIRST_PREQUANTIZED = (0, 16)
FIRST_QWEN3 = (0, 20)
QFORMATS = {"fp8": "fp8_pc_pt", "fp8-static": "fp8", "awq": "int4_awq", "w4a8-awq": "w4a8_awq"}
"""Scheme → ``quantize.py --qformat``."""
ALGORITHMS = {
    "none": None,
    "fp8": "FP8_PER_CHANNEL_PER_TOKEN",
    "fp8-static": "FP8",
    "int8": "W8A8_SQ_PER_CHANNEL",
    "int8-weight-only": "W8A16",
    "awq": "W4A16_AWQ",
    "w4a8-awq": "W4A8_AWQ",
}
"""Scheme → ``quantization.quant_algo`` of the checkpoint."""


class Route(Strict):
    """How one line's checkpoint is made."""

    kind: Literal["modelopt", "converter"]
    why: str
    quant_algo: str | None
    """What the checkpoint's config must say."""
    program: str | None = None
    """Path of the script under TensorRT-LLM's folder, for a converter."""
    arguments: tuple[str, ...] = ()
    """With ``{checkpoint}`` and ``{output}`` for the directories."""


def choose_route(
    variant: Variant, facts: ModelFacts, card: TargetCard, engine: EngineBuild
) -> tuple[Route | None, list[Problem]]:
    """The route, or why there is none."""
    where = f"variants on {card.name}"
    if facts.architecture not in FAMILIES:
        known = ", ".join(FAMILIES)
        return None, [Problem(where, f"a {facts.architecture} for an engine", f"one of {known}", "Or a vLLM target")]
    if facts.quantized and variant.scheme != "none":
        return None, []  # refused for every target by the preflight
    if facts.quantized:
        return _prequantized(facts, card, engine, where)
    if engine.route == "converter":
        return _converter(variant, facts, card, engine, where)
    return (
        Route(
            kind="modelopt",
            why="ModelOpt converts on any machine" + _caveat(variant),
            quant_algo=ALGORITHMS[variant.scheme],
        ),
        [],
    )


def _caveat(variant: Variant) -> str:
    if isinstance(variant, Int8):
        return (
            "; its INT8 activations have one scale a tensor (engine.route: converter makes one a token, where "
            "TensorRT-LLM is installed)"
        )
    return ""


def _prequantized(
    facts: ModelFacts, card: TargetCard, engine: EngineBuild, where: str
) -> tuple[Route | None, list[Problem]]:
    version = parse_version(card.tensorrt_llm or "0")
    if facts.quantized not in PREQUANTIZED:
        return None, [
            Problem(where, f"a source quantized by {facts.quantized}", f"one of {', '.join(PREQUANTIZED)}, or none")
        ]
    if facts.desc_act:
        return None, [
            Problem(
                where,
                "a GPTQ source with desc_act: true, which TensorRT-LLM's converters refuse",
                "desc_act: false",
                "Quantize again without act-order",
            )
        ]
    if engine.route == "modelopt":
        return None, [Problem("engine.route", "'modelopt' for a quantized source", "auto or converter")]
    if version[:2] < FIRST_PREQUANTIZED:
        return None, [
            Problem(f"targets {card.name}", f"TensorRT-LLM {card.tensorrt_llm} for a quantized source", "0.16 or newer")
        ]
    program, family = _script(card, FAMILIES[facts.architecture])
    arguments = {**_common(card, engine), "workers": "1"}
    return (
        Route(
            kind="converter",
            why=f"the source is quantized already ({facts.quantized}); only TensorRT-LLM's converter reads it",
            quant_algo="W4A16_GPTQ",
            program=program,
            arguments=_line(arguments, family),
        ),
        [],
    )


def _converter(
    variant: Variant, facts: ModelFacts, card: TargetCard, engine: EngineBuild, where: str
) -> tuple[Route | None, list[Problem]]:
    version, kind = parse_version(card.tensorrt_llm or "0"), FAMILIES[facts.architecture]
    if facts.architecture == "Qwen3ForCausalLM" and version[:2] < FIRST_QWEN3:
        return None, [Problem(f"targets {card.name}", f"TensorRT-LLM {card.tensorrt_llm} for Qwen3", "0.20 or newer")]
    arguments: dict[str, str | bool] = dict(_common(card, engine))
    algorithm = ALGORITHMS[variant.scheme]
    if variant.scheme in QFORMATS:
        kind = "quantize"
        arguments |= {"qformat": QFORMATS[variant.scheme]}
        if isinstance(variant, Awq):
            arguments["awq_block_size"] = str(variant.group_size)
        if variant.kv_cache:
            arguments["kv_cache_dtype"] = variant.kv_cache
    else:
        arguments["workers"] = "1"  # each worker loads the whole model (TensorRT-LLM issues 2093 and 2202)
        if variant.scheme == "int8-weight-only":
            arguments |= {"use_weight_only": True, "weight_only_precision": "int8"}
        elif isinstance(variant, Int8):
            strength = 0.5 if variant.smoothing_strength is None else variant.smoothing_strength
            arguments |= {"smoothquant": str(strength), "per_token": True, "per_channel": True}
            algorithm = "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"
        if variant.kv_cache:
            arguments["fp8_kv_cache"] = True
    if engine.calib_dataset and (kind == "quantize" or isinstance(variant, Int8)):
        arguments["calib_dataset"] = engine.calib_dataset
    program, table = _script(card, kind)
    if unknown := [name for name in arguments if name not in table]:
        return None, [
            Problem(
                where,
                f"{variant.scheme} by the converter of TensorRT-LLM {card.tensorrt_llm}, which has no --{unknown[0]}",
                "engine.route: modelopt, or another release",
            )
        ]
    if wrong := _not_offered(arguments, table):
        return None, [Problem(where, f"TensorRT-LLM {card.tensorrt_llm}: {wrong}", "engine.route: modelopt")]
    return (
        Route(
            kind="converter",
            why="engine.route: converter",
            quant_algo=algorithm,
            program=program,
            arguments=_line(arguments, table),
        ),
        [],
    )


def _common(card: TargetCard, engine: EngineBuild) -> dict[str, str]:
    return {
        "model_dir": "{checkpoint}",
        "output_dir": "{output}",
        "dtype": engine.dtype,
        "tp_size": str(card.tensor_parallel),
        "pp_size": str(card.pipeline_parallel),
    }


def _not_offered(arguments: Mapping[str, str | bool], table: Mapping[str, Any]) -> str:
    for name, value in arguments.items():
        choices = table[name].get("choices")
        if choices and value not in choices and not (name == "dtype" and value == "auto"):
            return f"--{name} has no {value} (it has {', '.join(choices)})"
    return ""


def _line(arguments: Mapping[str, str | bool], table: Mapping[str, Any]) -> tuple[str, ...]:
    """``--name value`` for every option; ``auto`` is left out where the release does not know it."""
    words: list[str] = []
    for name, value in arguments.items():
        choices = table.get(name, {}).get("choices")
        if name not in table or (value == "auto" and choices and "auto" not in choices):
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return tuple(words)


def _script(card: TargetCard, kind: str) -> tuple[str, Mapping[str, Any]]:
    """Path and options of one of the release's scripts: its own table, or that of the newest listed before it."""
    version = parse_version(card.tensorrt_llm or "0")
    tables = _tables()
    release = max((r for r in tables if r <= version and kind in tables[r]), default=min(tables))
    script = tables[release].get(kind) or next(t[kind] for t in tables.values() if kind in t)
    path = script["path"]
    if (0, 20) <= version < (1, 0) and kind != "quantize":
        path = path.replace("examples/", "examples/models/core/")
    return path, script["options"]


@cache
def _tables() -> dict[tuple[int, ...], dict[str, Any]]:
    raw = json.loads(TABLES.read_text(encoding="utf-8"))
    return {parse_version(release): scripts for release, scripts in raw.items()}
