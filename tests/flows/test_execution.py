"""The order and bounds in which stages are run, without Prefect or tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from artifacts.stage import Stage, StageRecord, keys_of
from artifacts.store import Store
from builders.estimates import Estimate
from builders.model_facts import ModelFacts
from builders.resolve import ResolvedSource
from builders.run_stage import StageResult, Workshop
from flows import execution
from flows.execution import Build
from flows.plan import Plan, PlannedStage
from recipes.errors import StageFailed
from recipes.loading import load_recipe

DEMO = Path(__file__).parents[2] / "recipes" / "smollm2-135m.yaml"
FACTS = ModelFacts(architecture="x", parameters=1, weight_bytes=1, linears=())


def stage(name: str, *inputs: str, after: tuple[str, ...] = ()) -> Stage:
    params: dict[str, Any] = {"scheme": "fp8"} if name.startswith("quantize") else {}
    return Stage(
        name=name,
        kind=name.partition(":")[0],
        entry="m:f",
        params=params,
        inputs={i: i for i in inputs},
        after=after,
        code="",
    )


def plan_of(*stages: Stage, memory: int = 0) -> Plan:
    keys = keys_of(stages)
    estimate = Estimate(output_bytes=0, memory_bytes=memory, least_bytes=memory)
    planned = [PlannedStage(stage=s, key=keys[s.name], status="todo", estimate=estimate) for s in stages]
    source = ResolvedSource(kind="path", params={"fingerprint": "x"}, facts=FACTS)
    return Plan(recipe=load_recipe(DEMO), source=source, registry="file:///r", stages=tuple(planned))


LINE = (
    stage("checkpoint"),
    stage("quantize:a", "checkpoint"),
    stage("quantize:b", "checkpoint"),
    stage("evaluate:a", "quantize:a"),
    stage("evaluate:b", "quantize:b", after=("quantize:a",)),
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Build, list[str], int]]:
    """Run a plan, a function in place of each stage's work. Gives the build, the order of starts, the most at once."""
    monkeypatch.setattr(execution, "stopped_by", lambda _stage, _folder: "")

    def run_plan(
        plan: Plan, work: Callable[[str], None] = lambda _name: None, slots: int = 2
    ) -> tuple[Build, list[str], int]:
        build = Build(plan, Workshop(Store(tmp_path / "store"), tmp_path))
        monkeypatch.setattr(build.store, "artifact", lambda _digest: type("A", (), {"path": tmp_path})())
        order: list[str] = []
        lock, now, most = threading.Lock(), 0, 0

        def one(name: str) -> StageResult:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            try:
                work(name)
            finally:
                with lock:
                    now -= 1
            record = StageRecord(key="k", artifact="d", stage=name, bytes=0, built_at="")
            return StageResult(record, "ran")

        with ThreadPoolExecutor(8) as pool:

            def start(planned: PlannedStage) -> Future[StageResult | None]:
                order.append(planned.name)
                return pool.submit(one, planned.name)

            build.execute(start, slots)
        return build, order, most

    return run_plan


def test_inputs_come_first_and_slots_are_kept(run: Callable[..., tuple[Build, list[str], int]]) -> None:
    build, order, most = run(plan_of(*LINE))
    assert build.ran == len(LINE)
    assert most <= 2
    for planned in LINE:
        for source in (*planned.inputs.values(), *planned.after):
            assert order.index(source) < order.index(planned.name)


def test_a_failure_ends_its_variant_and_no_other(run: Callable[..., tuple[Build, list[str], int]]) -> None:
    def work(name: str) -> None:
        if name == "quantize:b":
            raise StageFailed(name, "tool", "broke")

    build, order, _ = run(plan_of(*LINE), work)
    assert build.failures == {"quantize:b": "quantize:b: broke"}
    assert "evaluate:a" in order
    assert "evaluate:b" not in order


def test_two_that_do_not_fit_into_memory_run_one_by_one(run: Callable[..., tuple[Build, list[str], int]]) -> None:
    _, _, most = run(plan_of(*LINE, memory=1 << 60))
    assert most == 1


def test_an_interrupt_stops_the_workers(run: Callable[..., Any], tmp_path: Path) -> None:
    build = Build(plan_of(*LINE), Workshop(Store(tmp_path / "store"), tmp_path))

    def start(_planned: PlannedStage) -> Future[StageResult | None]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.execute(start, 2)
    assert build.shop.stop.is_set()
