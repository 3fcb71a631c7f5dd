"""The stages of one engine line: convert, check, build, write what serves it."""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from artifacts.digest import digest_json
from artifacts.stage import Stage
from builders.resolve import ResolvedSource
from builders.stage_makers import function_stage, worker_stage
from builders.toolchains import VENDOR
from builders.trtllm.line import EngineLine
from builders.trtllm.options import command_line, table_for
from builders.trtllm.routes import Route, choose_route
from builders.trtllm.settings import engine_settings, plugin_names, timing_cache_options
from recipes.models import Recipe
from recipes.targets import TargetCard
from recipes.variants import Awq, needs_calibration


def engine_stages(line: EngineLine, recipe: Recipe, source: ResolvedSource, home: Path) -> list[Stage]:
    """Convert to TensorRT-LLM's checkpoint, check it, build the engine, write what serves it.

    The line has been found possible (builders/trtllm/preflight.py).
    """
    variant, card = recipe.variants[line.variant], line.card
    route, _ = choose_route(variant, source.facts, card, recipe.engine)
    settings, _ = engine_settings(recipe, variant, source.facts, card)
    if route is None or settings is None:
        raise ValueError(f"{line.name} has not been checked")
    return [
        _convert_stage(line, recipe, route, source, home),
        function_stage(
            f"integrity:{line.name}",
            "builders.trtllm.check:check",
            params={
                "quant_algo": route.quant_algo,
                "kv_cache": variant.kv_cache,
                "tensor_parallel": card.tensor_parallel,
                "pipeline_parallel": card.pipeline_parallel,
            },
            inputs={"source": "checkpoint", "output": f"convert:{line.name}"},
            helpers=(
                "builders/rope.py",
                "builders/tensor_values.py",
                *(f"builders/trtllm/{name}.py" for name in ("config", "layout", "shares")),
            ),
        ),
        worker_stage(
            f"engine:{line.name}",
            "builders/workers/trtllm_build.py",
            home,
            params={
                "arguments": command_line(settings.options),
                "timing_cache": timing_cache_options(card.tensorrt_llm or ""),
                "plugin_types": [*plugin_names(settings.options, table_for(card.tensorrt_llm or ""))],
                "tensorrt_llm": card.tensorrt_llm,
                "sm": card.sm,
                "ranks": card.ranks,
            },  # pyright: ignore[reportArgumentType]
            inputs={"checkpoint": f"convert:{line.name}"},
            helpers=("builders/workers/gpu_facts.py",),
            after=(f"integrity:{line.name}",),
            toolchain=VENDOR,
            pins=_vendor_pins(card),
        ),
        function_stage(
            f"serve:{line.name}",
            "builders.serving.engine:write",
            params={
                "tensorrt_llm": card.tensorrt_llm,
                "settings": settings.model_dump(mode="json"),
                "serving": recipe.serving.model_dump(mode="json"),
                "tensor_parallel": card.tensor_parallel,
                "pipeline_parallel": card.pipeline_parallel,
            },
            inputs={"checkpoint": "checkpoint", "engine": f"engine:{line.name}"},
            helpers=("builders/serving/triton.py", "builders/serving/scripts.py"),
        ),
    ]


def _convert_stage(line: EngineLine, recipe: Recipe, route: Route, source: ResolvedSource, home: Path) -> Stage:
    variant, card = recipe.variants[line.variant], line.card
    inputs = {"checkpoint": "checkpoint"}
    timeout_s = variant.timeout_minutes * 60
    if route.kind == "converter":
        return worker_stage(
            f"convert:{line.name}",
            "builders/workers/trtllm_convert.py",
            home,
            params={
                "program": route.program,
                "arguments": list(route.arguments),
                "tensorrt_llm": card.tensorrt_llm,
            },
            inputs=inputs,
            timeout_s=timeout_s,
            toolchain=VENDOR,
            pins=_vendor_pins(card),
        )
    if needs_calibration(variant):
        inputs["calibration"] = "calibration"
    params: dict[str, JsonValue] = {
        "scheme": variant.scheme,
        "kv_cache": variant.kv_cache,
        "dtype": _dtype(recipe, source),
        "tensor_parallel": card.tensor_parallel,
        "pipeline_parallel": card.pipeline_parallel,
    }
    if isinstance(variant, Awq):
        params |= {"group_size": variant.group_size, "n_grid": variant.n_grid}
    return worker_stage(
        f"convert:{line.name}",
        "builders/workers/modelopt_convert.py",
        home,
        params=params,
        inputs=inputs,
        helpers=("builders/workers/checkpoint_files.py", "builders/workers/modelopt_common.py"),
        timeout_s=timeout_s,
        toolchain="modelopt",
    )


def _dtype(recipe: Recipe, source: ResolvedSource) -> str:
    """TensorRT-LLM computes in 16 bits: a 32-bit checkpoint becomes bfloat16."""
    if recipe.engine.dtype != "auto":
        return recipe.engine.dtype
    return "float16" if source.facts.dtype == "float16" else "bfloat16"


def _vendor_pins(card: TargetCard) -> str:
    """The release and the image stand for the tool; the worker refuses to run under another release."""
    return digest_json(["tensorrt-llm", card.tensorrt_llm, card.image])
