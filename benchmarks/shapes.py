"""Every tool and scheme on every shape of model: run for real on tiny checkpoints, or refused by the plan, and why.

    uv run --group test benchmarks/shapes.py [--home DIR] [--only TOOL,...] [--json] [--write docs/measured-shapes.md]

A cell *works* when the tool ran and the integrity check found nothing. Stages that the home holds are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from artifacts.home import Home
from artifacts.store import Store
from builders.integrity import read_integrity
from builders.run_stage import Workshop
from flows.execution import Build
from flows.plan import make_plan
from recipes.errors import BadRequest, EngineworksError

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.tiny_models import SHAPES, Family, write_shape  # noqa: E402  (the tests' own models, not installed)

CELLS: dict[tuple[str, str], tuple[str, str]] = {
    ("llm-compressor", "fp8"): ("{scheme: fp8}", "h100"),
    ("llm-compressor", "fp8-static"): ("{scheme: fp8-static}", "h100"),
    ("llm-compressor", "int8"): ("{scheme: int8}", "h100"),
    ("llm-compressor", "gptq"): ("{scheme: gptq, group_size: 64}", "h100"),
    ("llm-compressor", "awq"): ("{scheme: awq, group_size: 64, n_grid: 4}", "h100"),
    ("llm-compressor", "int4"): ("{scheme: int4, group_size: 64}", "h100"),
    ("gptqmodel", "gptq"): ("{scheme: gptq, tool: gptqmodel, group_size: 64}", "h100"),
    ("autogptq", "gptq"): ("{scheme: gptq, tool: autogptq, group_size: 64, actorder: null}", "h100"),
    ("autoawq", "awq"): ("{scheme: awq, tool: autoawq, group_size: 64, symmetric: false}", "h100"),
    ("modelopt", "fp8"): ("{scheme: fp8, tool: modelopt}", "h100:checkpoint"),
    ("modelopt", "fp8-static"): ("{scheme: fp8-static, tool: modelopt}", "h100:checkpoint"),
    ("modelopt", "awq"): ("{scheme: awq, tool: modelopt, group_size: 64, n_grid: 4}", "h100:checkpoint"),
    ("modelopt", "w4a8-awq"): ("{scheme: w4a8-awq}", "h100:checkpoint"),
    ("modelopt", "nvfp4"): ("{scheme: nvfp4}", "b200:checkpoint"),
    ("llama.cpp", "gguf"): ("{scheme: gguf, type: q8_0}", "cpu"),
}
"""Tool and scheme → the variant, and a target that takes it."""
RECIPE = """
model: tiny
source: path:{source}
calibration: {{samples: 8, sequence_length: 128}}
variants: {{tried: {variant}}}
targets: ["{target}"]
evaluation: {{gate: {{margin: 0.9, expected_flips: 0.01}}}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--only", default="", help="tools, by comma")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    tools = {name for name in str(arguments.only).split(",") if name}
    with tempfile.TemporaryDirectory(prefix="engineworks-shapes-") as fresh:
        home = Home.find(arguments.home or Path(fresh))
        cells = {cell: it for cell, it in CELLS.items() if not tools or cell[0] in tools}
        rows = [
            {"tool": tool, "scheme": scheme, **{family: tried(family, variant, target, home) for family in SHAPES}}
            for (tool, scheme), (variant, target) in cells.items()
        ]
    if arguments.json:
        print(json.dumps({"rows": rows}))
    page = as_markdown(rows)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")
    elif not arguments.json:
        print(page)


def tried(family: Family, variant: str, target: str, home: Home) -> str:
    """``works``, ``refused: …`` (by the plan) or ``fails: …`` (a tool that died, or what the check found)."""
    models = home.root / "tiny-models"
    source = models / family
    if not source.exists():
        write_shape(source, family)
    recipe = models / f"{family}.yaml"
    recipe.write_text(RECIPE.format(source=source, variant=variant, target=target), encoding="utf-8")
    try:
        plan = make_plan(recipe, (), home)
    except BadRequest as error:
        return "refused: " + "; ".join(f"{problem.seen} (wanted {problem.wanted})" for problem in error.problems)
    build = Build(plan, Workshop(Store(home.store), home.root, threads=2))
    try:
        for stage in plan.stages:
            if stage.name in ("checkpoint", "calibration", "quantize:tried", "integrity:tried"):
                if stage.name not in build.done:
                    result = build.run(stage.name)
                    build.digests[stage.name] = result.record.artifact if result else ""
                print(family, variant, stage.name, file=sys.stderr, flush=True)
    except EngineworksError as error:
        return f"fails: {error}"
    found = read_integrity(build.store.artifact(build.digests["integrity:tried"]).path).errors
    return f"fails: {found[0]}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else "") if found else "works"


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """A table with a number for each reason, and the reasons under it."""
    reasons: list[str] = []

    def cell(said: str) -> str:
        kind, _, why = said.partition(": ")
        if not why:
            return kind
        if why not in reasons:
            reasons.append(why)
        return f"{kind} [{reasons.index(why) + 1}]"

    lines = [
        "# Tools, schemes and shapes, as run",
        "",
        "Written by `uv run --group test benchmarks/shapes.py --write docs/measured-shapes.md`.",
        "Each cell is a real run on a tiny random-weight checkpoint of that shape with nothing found by the",
        "[integrity check](integrity.md) (*works*), or the plan's refusal. What is odd about each shape (shards,",
        "types, tied tables, heads) is in `tests/tiny_models.py`.",
        "",
        "| tool | scheme | " + " | ".join(SHAPES) + " |",
        "|---" * (len(SHAPES) + 2) + "|",
    ]
    lines += [
        f"| {row['tool']} | {row['scheme']} | " + " | ".join(cell(row[family]) for family in SHAPES) + " |"
        for row in rows
    ]
    return "\n".join([*lines, "", *(f"{n}. {why}" for n, why in enumerate(reasons, start=1))]) + "\n"


if __name__ == "__main__":
    main()
