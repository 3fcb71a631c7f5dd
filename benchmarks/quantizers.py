"""Every quantizer on one model: seconds, memory against the plan's estimate, bytes, perplexity beside the original's.

    uv run benchmarks/quantizers.py --text FILE [--recipe R] [--home DIR] [--windows 12] [--json]

``FILE`` is any UTF-8 text, such as WikiText-2's test split. Stages that the home holds already are not run again; their
figures are those of the run that made them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from artifacts.home import Home
from artifacts.store import Store
from builders.toolchains import find_toolchain, make_ready
from builders.worker_process import WorkerJob, run_worker_process
from flows.plan import make_plan
from recipes.variants import tool_of

ROOT = Path(__file__).parent.parent
ALL = (
    "variants.fp8-static={scheme: fp8-static}", "variants.int4={scheme: int4, group_size: 64}",
    "variants.gptqmodel={scheme: gptq, tool: gptqmodel, group_size: 64}",
    "variants.gguf-q8={scheme: gguf, type: q8_0}", "variants.gguf-q4={scheme: gguf}",
    "evaluation.documents=60", "evaluation.gate.margin=0.9", "evaluation.gate.expected_flips=0.01",
    "variants.gptq.margin=0.9", "variants.awq.margin=0.9",
)  # fmt: skip
"""The demo's four variants and every other that this machine can make of its model. The gate is not measured here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "smollm2-135m.yaml")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="engineworks-quantizers-") as fresh:
        home = Home.find(arguments.home or Path(fresh))
        rows = measure(arguments.recipe, arguments.text, arguments.windows, home)
    if arguments.json:
        print(json.dumps({"rows": rows}))
        return
    print("| variant | tool | seconds | peak MB | estimate / peak | MB | perplexity |\n|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [row[name] for name in ("variant", "tool", "seconds", "peak_mb", "estimate_ratio", "mb", "perplexity")]
        print("| " + " | ".join("–" if cell is None else str(cell) for cell in cells) + " |")


def measure(recipe: Path, text: Path, windows: int, home: Home) -> list[dict[str, Any]]:
    sets = [part for setting in ALL for part in ("--set", setting)]
    command = [sys.executable, "-c", "from flows.cli import main; main()", "build", str(recipe), "--json"]
    before = {stage.name: stage.estimate for stage in make_plan(recipe, ALL, home).stages}
    subprocess.run([*command, *sets, "--home", str(home.root)], check=False, stdout=subprocess.DEVNULL)
    plan, store = make_plan(recipe, ALL, home), Store(home.store)
    stages = {stage.name: stage for stage in plan.stages}
    checkpoint = store.artifact(stages["checkpoint"].artifact or "")
    rows = [
        {
            "variant": "original", "tool": None, "seconds": None, "peak_mb": None, "estimate_ratio": None,
            "mb": round(checkpoint.manifest.size / 1e6), "perplexity": perplexity(checkpoint.path, text, windows, home),
        }
    ]  # fmt: skip
    for name, variant in plan.recipe.variants.items():
        stage, tool = stages[f"quantize:{name}"], tool_of(variant)
        record = store.record(stage.key)
        if record is None or tool is None:
            continue
        artifact = store.artifact(record.artifact)
        peak = record.metrics.get("peak_rss_bytes", 0)
        estimate = before[f"quantize:{name}"]
        judge = tool.judged_by
        rows.append(
            {
                "variant": name,
                "tool": tool.name,
                "seconds": round(record.metrics["seconds"], 1),
                "peak_mb": round(peak / 1e6),
                "estimate_ratio": round(estimate.memory_bytes / peak, 2) if estimate and peak else None,
                "mb": round(artifact.manifest.size / 1e6),
                "perplexity": perplexity(artifact.path, text, windows, home, judge) if judge else None,
            }
        )
    return rows


def perplexity(checkpoint: Path, text: Path, windows: int, home: Home, toolchain: str = "llmcompressor") -> float:
    tool = find_toolchain(toolchain, home.root)
    make_ready(tool, lambda _message: None)
    work = Path(tempfile.mkdtemp(prefix="engineworks-perplexity-"))
    try:
        for name in ("output", "scratch"):
            (work / name).mkdir()
        run_worker_process(
            WorkerJob(
                stage="perplexity",
                python=tool.python,
                script=ROOT / "evaluation" / "workers" / "perplexity.py",
                params={"file": text.name, "windows": windows, "length": 512},
                inputs={"checkpoint": checkpoint, "text": text.parent},
                output=work / "output",
                scratch=work / "scratch",
                work=work,
                threads=2,
                timeout_s=3600,
                on_event=lambda _event: None,
            )
        )
        return round(json.loads((work / "output" / "perplexity.json").read_text())["perplexity"], 2)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
