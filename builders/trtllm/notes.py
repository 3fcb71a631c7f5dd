"""What a plan tells of its engines: the commands, what they will take, and why this route."""

from __future__ import annotations

from collections.abc import Iterable

from artifacts.stage import Stage
from builders.estimates import in_words as bytes_in_words
from builders.model_facts import ModelFacts
from builders.trtllm.line import engine_lines
from builders.trtllm.options import in_words
from builders.trtllm.routes import choose_route
from builders.trtllm.settings import engine_settings
from recipes.models import Recipe
from recipes.targets import TargetCard


def commands(stages: Iterable[Stage]) -> dict[str, str]:
    """Stage → command line, with folders in braces, for the stages that run TensorRT-LLM's own tools."""
    found: dict[str, str] = {}
    for stage in stages:
        words = stage.params.get("arguments")
        if not isinstance(words, list):
            continue
        arguments = [str(word) for word in words]
        if stage.kind == "engine":
            places = ["--checkpoint_dir", "{checkpoint}", "--output_dir", "{output}/engine"]
            caches = [part for name in _texts(stage, "timing_cache") for part in (f"--{name}", "{timing_cache}")]
            plugins = [part for name in _texts(stage, "plugin_types") for part in (f"--{name}", "{dtype}")]
            found[stage.name] = in_words("trtllm-build", [*places, *arguments, *plugins, *caches])
        elif stage.kind == "convert":
            found[stage.name] = in_words("python3", [str(stage.params["program"]), *arguments])
    return found


def notes_on(recipe: Recipe, cards: Iterable[TargetCard], facts: ModelFacts) -> list[str]:
    """A line on the route and one on memory, for every engine."""
    notes: list[str] = []
    for line in engine_lines(recipe, cards):
        variant = recipe.variants[line.variant]
        route, _ = choose_route(variant, facts, line.card, recipe.engine)
        settings, _ = engine_settings(recipe, variant, facts, line.card)
        if route is None or settings is None:
            continue
        memory = settings.memory
        notes.append(f"{line.name}: {route.why}; quant_algo {route.quant_algo or 'none'}")
        notes.append(
            f"{line.name}: engine {bytes_in_words(memory.engine)} a rank, KV cache {bytes_in_words(memory.cache)} = "
            f"{memory.tokens} tokens, {memory.batch} sequences of {memory.max_seq_len} at once"
        )
        if recipe.serving.speculative is not None:
            notes.append(f"{line.name}: serving.speculative is not carried to engines (vLLM and :checkpoint targets)")
        if line.card.image is None:
            notes.append(
                f"{line.name}: the card pins no image; the worker's TensorRT-LLM {line.card.tensorrt_llm} is used"
            )
    return notes


def _texts(stage: Stage, name: str) -> list[str]:
    value = stage.params.get(name)
    return [str(item) for item in value] if isinstance(value, list) else []
