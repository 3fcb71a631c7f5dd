"""Run a plan: stages side by side as their inputs are ready, the longest way first, within the machine's memory.

Knows nothing of Prefect: whoever calls gives the function that starts one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait

from artifacts.stage import Stage
from artifacts.store import Store
from builders.run_stage import StageResult, Workshop, run_stage
from builders.workers.memory import memory_limit
from flows.plan import Plan, PlannedStage, stopped_by
from flows.publish import publish
from recipes.errors import EngineworksError

WEIGHTS = {"awq": 8.0, "gptq": 4.0, "int8": 4.0}
"""Rough cost of quantizing by scheme, where evaluating costs 4 and anything else 1: only for the order of starting."""


class Build:
    """A plan being carried out. Used from one thread, but for :meth:`run`, which any thread may call."""

    def __init__(self, plan: Plan, shop: Workshop) -> None:
        self.plan = plan
        self.shop = shop
        self.store: Store = shop.store
        self.planned = {stage.name: stage for stage in plan.stages}
        self.digests = {stage.name: stage.artifact for stage in plan.stages if stage.artifact}
        self.done = {stage.name for stage in plan.stages if stage.status == "cached"}
        self.failures: dict[str, str] = {}
        self.metrics: dict[str, dict[str, float]] = {}
        self.ran = 0
        self._length = self._lengths()

    def run(self, name: str) -> StageResult | None:
        """Do one stage whose inputs are done. None for a publication."""
        planned = self.planned[name]
        stage = planned.stage
        inputs = {given: self.digests[source] for given, source in stage.inputs.items()}
        if stage.kind != "publish":
            return run_stage(stage, planned.key, inputs, self.shop)
        release = self.planned[stage.inputs["release"]].stage
        parts = {given: self.digests[source] for given, source in release.inputs.items()}

        def progress(done: int, total: int) -> None:
            self.shop.on_event(
                name, {"event": "progress", "done": done, "total": total, "unit": "bytes", "message": ""}
            )

        metrics = {
            stage: values for stage, values in self.metrics.items() if stage.partition(":")[2] in ("", planned.line)
        }
        publish(inputs["release"], parts, metrics, self.plan.registry, self.store, progress)
        return None

    def execute(self, start: Callable[[PlannedStage], Future[StageResult | None]], slots: int) -> None:
        """Start every stage when it can run, at most ``slots`` at once, until nothing more can be done.

        A failed stage ends its variant, or everything that needs it; the others go on.
        """
        try:
            self._execute(start, slots)
        except BaseException:
            self.shop.stop.set()  # interrupted: kill the workers, or their threads would hold us here
            raise

    def _execute(self, start: Callable[[PlannedStage], Future[StageResult | None]], slots: int) -> None:
        running: dict[Future[StageResult | None], PlannedStage] = {}
        while True:
            if self.shop.stop.is_set():
                raise KeyboardInterrupt
            for planned in self._ready({stage.name for stage in running.values()}):
                if len(running) < slots and self._fits(planned, list(running.values())):
                    running[start(planned)] = planned
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                self._take(running.pop(future), future)

    def _take(self, planned: PlannedStage, future: Future[StageResult | None]) -> None:
        try:
            result = future.result()
        except EngineworksError as error:
            self.failures[planned.name] = str(error)
            self.shop.on_event(planned.name, {"event": "failed", "message": str(error)})
            return
        self.done.add(planned.name)
        if result is None:
            self.ran += 1
            self.shop.on_event(planned.name, {"event": "done", "message": "published"})
            return
        seconds = result.record.metrics.get("seconds", 0.0)
        words = f"done in {seconds:.1f} s" if result.outcome == "ran" else "there already"
        self.shop.on_event(planned.name, {"event": "done", "message": words})
        self.digests[planned.name] = result.record.artifact
        self.metrics[planned.name] = result.record.metrics
        self.ran += result.outcome == "ran"
        if reason := stopped_by(planned.stage, self.store.artifact(result.record.artifact).path):
            self.failures[planned.name] = reason

    def _ready(self, running: set[str]) -> list[PlannedStage]:
        stopped = {name.partition(":")[2] for name in self.failures if ":" in name}
        ready = [
            stage
            for stage in self.plan.todo
            if stage.name not in self.done | running | set(self.failures)
            and stage.line not in stopped
            and all(source in self.done for source in (*stage.stage.inputs.values(), *stage.stage.after))
        ]
        return sorted(ready, key=lambda stage: -self._length[stage.name])

    def _fits(self, planned: PlannedStage, running: list[PlannedStage]) -> bool:
        """Whether its memory is there beside what runs. A stage alone is always let in: it may be over-estimated."""
        if not running or planned.estimate is None:
            return True
        reserved = sum(stage.estimate.memory_bytes for stage in running if stage.estimate)
        return reserved + planned.estimate.memory_bytes <= memory_limit() * 0.9

    def _lengths(self) -> dict[str, float]:
        """Cost of the longest way from each stage to the end."""
        lengths: dict[str, float] = {}
        for planned in reversed(self.plan.stages):
            needed_by = [s.name for s in self.plan.stages if planned.name in (*s.stage.inputs.values(), *s.stage.after)]
            lengths[planned.name] = self._cost(planned.stage) + max((lengths[name] for name in needed_by), default=0.0)
        return lengths

    def _cost(self, stage: Stage) -> float:
        if stage.kind == "quantize":
            return WEIGHTS.get(str(stage.params["scheme"]), 1.0)
        return 4.0 if stage.kind == "evaluate" else 1.0
