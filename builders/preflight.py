"""Refusals that shapes and cards allow before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from builders.kernels import problems_with_kernels
from builders.model_facts import ModelFacts
from builders.shapes import problems_with_shape
from builders.trtllm.line import cards_of
from builders.trtllm.preflight import problems_with_engines
from recipes.errors import Problem, nearest
from recipes.models import Recipe
from recipes.support import FIRST_FP8_SM, support
from recipes.targets import TargetCard
from recipes.variants import Awq, Gptq, Int4, Variant

AUTOAWQ_GRID = 20
"""Scaling strengths that AutoAWQ tries, always."""


def problems_with(recipe: Recipe, cards: list[TargetCard], facts: ModelFacts) -> list[Problem]:
    """Everything in the recipe that can't work on this model and these cards."""
    problems: list[Problem] = []
    if facts.quantized and any(variant.scheme != "none" for variant in recipe.variants.values()):
        problems.append(
            Problem(
                "source",
                f"already quantized ({facts.quantized})",
                "an unquantized checkpoint",
                "Quantize from the original weights, or build engines of it as it is (scheme: none)",
            )
        )
    for name, variant in recipe.variants.items():
        problems += _targets(name, variant, cards)
        problems += _groups(name, variant, cards, facts)
        problems += _keep(name, variant, facts)
        problems += _kv_cache(name, variant, cards)
        problems += _tool_options(name, variant)
        problems += problems_with_shape(name, variant, facts)
        for card in cards_of(variant, cards):
            problems += problems_with_kernels(name, variant, card, facts)
    return problems + problems_with_engines(recipe, cards, facts)


def _targets(name: str, variant: Variant, cards: list[TargetCard]) -> Iterator[Problem]:
    known = [card.name for card in cards]
    for target in variant.targets or ():
        if target not in known:
            yield Problem(
                f"variants.{name}.targets",
                repr(target),
                f"one of the recipe's targets ({', '.join(known)})",
                nearest(target, known),
            )
    for card in cards_of(variant, cards):
        finding = support(variant, card)
        if finding.level == "no":
            yield Problem(
                f"variants.{name}.scheme",
                f"{variant.scheme!r} can't run on target {card.name} ({card.runtime}): {finding.why}",
                finding.instead,
                f"Or limit the variant to other targets with variants.{name}.targets",
            )


def _groups(name: str, variant: Variant, cards: list[TargetCard], facts: ModelFacts) -> Iterator[Problem]:
    if not isinstance(variant, Gptq | Awq | Int4):
        return
    where, size = f"variants.{name}.group_size", variant.group_size
    linears = [linear for linear in facts.linears if not _kept(linear.name, variant.keep)]
    if bad := [linear for linear in linears if linear.in_features % size]:
        widths = {linear.in_features for linear in linears}
        yield Problem(
            where,
            f"{size} does not divide the input size {bad[0].in_features} of {bad[0].name} "
            f"({len(bad)} of {len(linears)} layers)",
            _sizes_that_divide(widths),
        )
        return
    for card in cards_of(variant, cards):
        if card.runtime == "engine":
            continue  # builders/trtllm/preflight.py
        ranks = card.tensor_parallel
        split = [
            linear
            for linear in linears
            if linear.row_parallel and (linear.in_features % ranks or linear.in_features // ranks % size)
        ]
        if split:
            yield Problem(
                where,
                f"{size} does not divide {split[0].name}'s {split[0].in_features} inputs "
                f"split over tensor_parallel {ranks} (target {card.name})",
                _sizes_that_divide({linear.in_features // ranks for linear in linears if linear.row_parallel}),
                "Or use a card with a smaller tensor_parallel",
            )


def _tool_options(name: str, variant: Variant) -> Iterator[Problem]:
    """Options that the chosen tool has no way to carry out."""
    where, tool = f"variants.{name}", getattr(variant, "tool", "")
    if isinstance(variant, Gptq) and tool == "autogptq" and variant.actorder == "static":
        yield Problem(f"{where}.actorder", "'static', which AutoGPTQ lacks", "null or group", "Or tool: gptqmodel")
    if isinstance(variant, Awq) and tool == "autoawq":
        if variant.symmetric:
            yield Problem(f"{where}.symmetric", "true with AutoAWQ", "false: its GEMM format has zero points")
        if variant.n_grid != AUTOAWQ_GRID:
            yield Problem(f"{where}.n_grid", f"{variant.n_grid} with AutoAWQ", f"{AUTOAWQ_GRID}, as it is")
        if variant.duo_scaling == "both":
            yield Problem(f"{where}.duo_scaling", "'both' with AutoAWQ", "true or false")
    if isinstance(variant, Awq) and tool == "modelopt" and not variant.symmetric:
        yield Problem(f"{where}.symmetric", "false with ModelOpt", "true: its format has no zero points")
    if tool in ("gptqmodel", "autogptq", "autoawq") and variant.keep != ("lm_head",):
        yield Problem(f"{where}.keep", f"more than the output head with {tool}", "left out", "Or tool: llm-compressor")


def _kv_cache(name: str, variant: Variant, cards: list[TargetCard]) -> Iterator[Problem]:
    """ModelOpt's checkpoints carry scales for it; with others vLLM scales while serving."""
    others = [card.name for card in cards_of(variant, cards) if card.runtime != "engine"]
    if variant.kv_cache and others and getattr(variant, "tool", "") != "modelopt":
        yield Problem(
            f"variants.{name}.kv_cache",
            f"{variant.kv_cache!r} on target {others[0]}",
            "engine targets, or tool: modelopt",
            "vLLM needs no calibration for it: set serving.kv_cache_dtype: fp8",
        )
    old = [card for card in cards_of(variant, cards) if card.runtime == "engine" and (card.sm or 0) < FIRST_FP8_SM]
    if variant.kv_cache and old:
        yield Problem(
            f"variants.{name}.kv_cache",
            f"{variant.kv_cache!r} on target {old[0].name} (SM {old[0].sm})",
            f"a card from SM {FIRST_FP8_SM} on",
        )


def _keep(name: str, variant: Variant, facts: ModelFacts) -> Iterator[Problem]:
    for pattern in variant.keep:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                yield Problem(
                    f"variants.{name}.keep", repr(pattern), "a regular expression after 're:'", f"It fails: {error}."
                )
    if facts.linears and not [linear for linear in facts.linears if not _kept(linear.name, variant.keep)]:
        yield Problem(f"variants.{name}.keep", "every linear layer", "at least one layer left to quantize")


def _kept(layer: str, keep: tuple[str, ...]) -> bool:
    return any(
        re.match(pattern[3:], layer) is not None if pattern.startswith("re:") else layer == pattern for pattern in keep
    )


def _sizes_that_divide(widths: set[int]) -> str:
    sizes = [size for size in (128, 64, 32, 16) if all(width % size == 0 for width in widths)]
    return f"group_size {' or '.join(map(str, sizes))}" if sizes else "a scheme without groups (fp8, int8)"
