"""The stages of this room: tasks, evaluations, verdicts, and what goes into a release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from artifacts.stage import Stage
from builders.resolve import ResolvedSource
from builders.serving.scripts import backend_option
from builders.stage_makers import TOOLCHAIN, data_file_stage, function_stage, worker_stage
from builders.trtllm.installation import find_server
from builders.trtllm.line import EngineLine, cards_of, engine_lines, is_served_as_checkpoint
from builders.trtllm.routes import choose_route
from evaluation.task_names import EMBEDDED
from recipes.models import Recipe
from recipes.serving import Serving
from recipes.targets import TargetCard
from recipes.variants import needs_calibration, tool_of

ORIGINAL = "original"


def evaluation_stages(
    recipe: Recipe, cards: Sequence[TargetCard], source: ResolvedSource, home: Path, made: Sequence[Stage]
) -> tuple[Stage, ...]:
    """Evaluate the original once and every line, judge, and assemble releases; in topological order.

    ``made``: the builders' stages, which these follow.
    """
    stages: list[Stage] = []
    inputs: dict[str, str] = {}
    if embedded := [name for name in recipe.evaluation.tasks if name in EMBEDDED]:
        stages.append(
            worker_stage(
                "tasks",
                "evaluation/workers/build_tasks.py",
                home,
                params={"tasks": embedded, "seed": 0},  # pyright: ignore[reportArgumentType]
                inputs={},
                helpers=("builders/workers/pydoc_corpus.py",),
            )
        )
        inputs["tasks"] = "tasks"
    if recipe.evaluation.include is not None:
        stages.append(data_file_stage("include", recipe.evaluation.include))
        inputs["include"] = "include"
    checkpoints = [name for name in recipe.variants if is_served_as_checkpoint(recipe, name, cards)]
    engines = engine_lines(recipe, cards)
    has_server = bool(engines) and find_server() is not None
    if checkpoints or has_server:
        stages.append(_evaluate_stage(ORIGINAL, "checkpoint", (), inputs, recipe, home))
    for name in checkpoints:
        tool = tool_of(recipe.variants[name])
        judge = tool.judged_by if tool else None
        judged = judge is not None or (recipe.evaluation.backend != "hf" and tool is not None and tool.by_vllm)
        if judged:
            checkpoint, check = f"quantize:{name}", (f"life:{name}" if judge else f"integrity:{name}",)
            stages += [
                _evaluate_stage(name, checkpoint, check, inputs, recipe, home, judge or TOOLCHAIN),
                _gate_stage(name, name, recipe),
            ]
        else:
            stages.append(_not_run_stage(name, name, recipe, tool.unjudged if tool else "nothing can load it"))
        stages.append(_release_stage(name, recipe, cards, source, [*made, *stages], evaluated=judged))
    for line in engines:
        if has_server:
            stages += [
                _evaluate_engine_stage(line, inputs, recipe, home),
                _gate_stage(line.name, line.variant, recipe),
                _benchmark_stage(line, recipe, home),
            ]
        else:
            reason = "trtllm-serve is not on this machine, so it was not measured either"
            stages.append(_not_run_stage(line.name, line.variant, recipe, reason))
        stages.append(_engine_release_stage(line, recipe, source, [*made, *stages], evaluated=has_server))
    return tuple(stages)


def _evaluate_stage(
    name: str,
    checkpoint: str,
    after: tuple[str, ...],
    inputs: dict[str, str],
    recipe: Recipe,
    home: Path,
    toolchain: str = TOOLCHAIN,
) -> Stage:
    """``toolchain``: whose transformers loads the checkpoint (a server does it by itself)."""
    evaluation = recipe.evaluation
    params: dict[str, JsonValue] = evaluation.model_dump(
        mode="json", exclude={"include", "gate", "timeout_minutes", "backend"}
    )
    if evaluation.backend != "hf":
        params["server"] = vllm_server(evaluation.backend, recipe.serving)
    return worker_stage(
        f"evaluate:{name}",
        "evaluation/workers/lm_eval_run.py",
        home,
        params=params,
        inputs={"checkpoint": checkpoint, **inputs},
        helpers=("evaluation/workers/openai_server.py",),
        after=after,
        timeout_s=evaluation.timeout_minutes * 60,
        toolchain=toolchain if evaluation.backend == "hf" else TOOLCHAIN,
        tools=() if evaluation.backend == "hf" else (evaluation.backend,),
    )


def vllm_server(toolchain: str, serving: Serving) -> list[JsonValue]:
    """The command of a vLLM server on a checkpoint. Compiled graphs would cost minutes of every start."""
    words: list[JsonValue] = [
        "{python:" + toolchain + "}", "-m", "vllm.entrypoints.openai.api_server", "--model", "{checkpoint}",
        "--served-model-name", "model", "--host", "127.0.0.1", "--port", "{port}", "--enforce-eager",
        "--gpu-memory-utilization", f"{serving.gpu_memory_utilization:g}",
    ]  # fmt: skip
    if serving.max_model_len:
        words += ["--max-model-len", str(serving.max_model_len)]
    if serving.kv_cache_dtype != "auto":
        words += ["--kv-cache-dtype", serving.kv_cache_dtype]
    return words


def _evaluate_engine_stage(line: EngineLine, inputs: dict[str, str], recipe: Recipe, home: Path) -> Stage:
    """What is judged is what is served: trtllm-serve on the engine itself."""
    stage = _evaluate_stage(line.name, "checkpoint", (), inputs, recipe, home)
    return stage.model_copy(
        update={
            "tools": {},
            "params": {**stage.params, "server": _engine_server(line)},
            "inputs": {**stage.inputs, "engine": f"engine:{line.name}", "serve": f"serve:{line.name}"},
        }
    )


def _benchmark_stage(line: EngineLine, recipe: Recipe, home: Path) -> Stage:
    """How fast the engine serves, under the recipe's load."""
    return worker_stage(
        f"benchmark:{line.name}",
        "evaluation/workers/serve_benchmark.py",
        home,
        params={"server": _engine_server(line), **recipe.benchmark.model_dump(mode="json")},
        inputs={"checkpoint": "checkpoint", "engine": f"engine:{line.name}", "serve": f"serve:{line.name}"},
        helpers=("evaluation/workers/openai_server.py",),
        after=(f"gate:{line.name}",),
        timeout_s=recipe.evaluation.timeout_minutes * 60,
    )


def _engine_server(line: EngineLine) -> list[JsonValue]:
    card = line.card
    return [
        "trtllm-serve", "{engine}/engine", "--tokenizer", "{serve}/tokenizer",
        *backend_option("tensorrt", card.tensorrt_llm or ""), "--host", "127.0.0.1", "--port", "{port}",
        "--tp_size", str(card.tensor_parallel), "--pp_size", str(card.pipeline_parallel),
    ]  # fmt: skip


def _not_run_stage(name: str, variant_name: str, recipe: Recipe, reason: str) -> Stage:
    """Stands for the gate where nothing here can judge."""
    gate, variant = recipe.evaluation.gate, recipe.variants[variant_name]
    return function_stage(
        f"gate:{name}",
        "evaluation.not_run:run",
        params={
            "margin": variant.margin or gate.margin,
            "confidence": gate.confidence,
            "reason": reason,
        },
        inputs={"integrity": f"integrity:{name}"},
        helpers=("evaluation/verdict.py",),
    )


def _gate_stage(name: str, variant_name: str, recipe: Recipe) -> Stage:
    gate, variant = recipe.evaluation.gate, recipe.variants[variant_name]
    return function_stage(
        f"gate:{name}",
        "evaluation.gate:run",
        params={"margin": variant.margin or gate.margin, "confidence": gate.confidence},
        inputs={
            "baseline": f"evaluate:{ORIGINAL}",
            "candidate": f"evaluate:{name}",
            "integrity": f"integrity:{name}",
        },
        helpers=("evaluation/paired.py", "evaluation/verdict.py"),
    )


def _release_stage(
    name: str,
    recipe: Recipe,
    cards: Sequence[TargetCard],
    source: ResolvedSource,
    before: list[Stage],
    *,
    evaluated: bool,
) -> Stage:
    variant = recipe.variants[name]
    inputs = {
        "checkpoint": "checkpoint",
        "weights": f"quantize:{name}",
        "integrity": f"integrity:{name}",
        "gate": f"gate:{name}",
    }
    if evaluated:
        inputs |= {"baseline": f"evaluate:{ORIGINAL}", "candidate": f"evaluate:{name}"}
    if (tool := tool_of(variant)) and tool.judged_by:
        inputs["life"] = f"life:{name}"
    if needs_calibration(variant):
        inputs["calibration"] = "calibration"
    served_by = [card for card in cards_of(variant, cards) if card.runtime != "engine"]
    params: dict[str, JsonValue] = {
        **_claims(name, name, recipe, source, before),
        "tool": getattr(variant, "tool", "none"),
        "targets": [card.name for card in served_by],
        "tensor_parallel": max(card.tensor_parallel for card in served_by),
        "pipeline_parallel": max(card.pipeline_parallel for card in served_by),
        "pytorch_backend": any(card.runtime == "checkpoint" for card in served_by),
        "tensorrt_llm": next((card.tensorrt_llm for card in served_by if card.runtime == "checkpoint"), None),
    }
    helpers = ("artifacts/release.py", "evaluation/model_card.py", "builders/serving/scripts.py")
    return function_stage(f"release:{name}", "evaluation.assemble:run", params=params, inputs=inputs, helpers=helpers)


def _engine_release_stage(
    line: EngineLine, recipe: Recipe, source: ResolvedSource, before: list[Stage], *, evaluated: bool
) -> Stage:
    variant = recipe.variants[line.variant]
    route, _ = choose_route(variant, source.facts, line.card, recipe.engine)
    by_modelopt = route is None or route.kind == "modelopt"
    inputs = {
        "checkpoint": "checkpoint",
        "engine": f"engine:{line.name}",
        "serve": f"serve:{line.name}",
        "integrity": f"integrity:{line.name}",
        "gate": f"gate:{line.name}",
    }
    if evaluated:
        inputs |= {"baseline": f"evaluate:{ORIGINAL}", "candidate": f"evaluate:{line.name}"}
        inputs["benchmark"] = f"benchmark:{line.name}"
    if needs_calibration(variant) and by_modelopt:
        inputs["calibration"] = "calibration"
    params: dict[str, JsonValue] = {
        **_claims(line.variant, line.name, recipe, source, before),
        "line": line.name,
        "tool": "modelopt" if by_modelopt else "tensorrt-llm",
        "targets": [line.card.name],
    }
    helpers = ("artifacts/release.py", "evaluation/model_card.py", "evaluation/assemble.py")
    return function_stage(
        f"release:{line.name}", "evaluation.assemble_engine:run", params=params, inputs=inputs, helpers=helpers
    )


def _claims(
    variant: str, line: str, recipe: Recipe, source: ResolvedSource, before: list[Stage]
) -> dict[str, JsonValue]:
    """What every release says of its making."""
    took_part = [stage for stage in before if stage.name.partition(":")[2] in ("", line, ORIGINAL)]
    return {
        "variant": variant,
        "recipe": recipe.model_dump(mode="json", exclude={"publication"}),
        "source": {"kind": source.kind, **source.params},
        "toolchains": {stage.toolchain: stage.pins for stage in took_part if stage.toolchain},
    }
