"""The README of a release: a Hugging Face model card with the gate's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from evaluation.verdict import Verdict
from recipes.models import Recipe


def model_card(
    recipe: Recipe,
    variant: str,
    tool: str,
    verdict: Verdict,
    checkpoint: Path,
    source: Mapping[str, JsonValue],
    targets: Sequence[str],
    *,
    engine: bool,
) -> str:
    """Markdown with the metadata block that the Hub reads. The original's own card follows, as its terms may ask."""
    scheme = recipe.variants[variant].scheme
    origin = source.get("repo") or source.get("package") or source.get("uri") or source.get("path")
    base = f"base_model: {source['repo']}\nbase_model_relation: quantized\n" if "repo" in source else ""
    rows = "\n".join(
        f"| {task.task} | {task.metric} | {task.documents} "
        f"| {task.baseline:.4f} | {task.candidate:.4f} | {task.drop:+.4f} |"
        for task in verdict.tasks
    )
    scores = (
        f"""On {verdict.documents} documents the original scores {verdict.baseline:.4f}
and this variant {verdict.candidate:.4f}.

| task | metric | documents | original | this | drop |
|---|---|---|---|---|---|
{rows}
"""
        if verdict.baseline is not None and verdict.candidate is not None
        else ""
    )
    kind = "tensorrt-llm" if engine else "compressed-tensors, vllm"
    use = (
        "Serve it with `sh serve/trtllm-serve.sh` or `sh serve/triton.sh`, on the GPU and release that `hardware.json` "
        "names."
        if engine
        else "Serve it with `sh serve/vllm.sh`, or load `weights/` with transformers."
    )
    return f"""---
library_name: {"tensorrt-llm" if engine else "transformers"}
tags: [{scheme}, {kind}, engineworks]
{base}---

# {recipe.model} · {variant}{" for " + ", ".join(targets) if engine else ""}

{origin} made with {tool} (`{scheme}`) by Engineworks.

**{verdict.outcome}**: {verdict.reason}. {scores}
{use} Evidence: `evaluation/`. How it was built: `recipe.json`.
{_original_card(checkpoint)}"""


def _original_card(checkpoint: Path) -> str:
    card = checkpoint / "README.md"
    if not card.is_file():
        return ""
    text = card.read_text(encoding="utf-8", errors="replace")
    if text.startswith("---"):
        text = text.partition("---")[2].partition("---")[2]
    return f"\n## The original's card\n{text.rstrip()}\n"
