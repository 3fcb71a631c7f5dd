"""The Prefect flow ``build-engine``: one task a stage."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from artifacts.home import Home
from artifacts.store import Store
from builders.run_stage import OnStageEvent, StageResult, Workshop
from flows.execution import Build
from flows.interrupt import interrupted
from flows.machine import cores, problems_with_machine
from flows.plan import Plan, PlannedStage, make_plan
from flows.result import BuildResult, collect
from recipes.errors import RETRYABLE, BadRequest, StageFailed

listener: ContextVar[OnStageEvent | None] = ContextVar("listener", default=None)
"""Who is told of events instead of the run's logger: the command line shows them itself."""
RETRIES = 3
SLOTS = 2
"""Stages at once: one loads or writes while the other computes."""


@flow(  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
    name="build-engine",
    flow_run_name="{recipe}",
    task_runner=ThreadPoolTaskRunner(max_workers=SLOTS),  # pyright: ignore[reportArgumentType]
    validate_parameters=True,
    persist_result=False,
)
def build_engine(recipe: str, overrides: list[str] | None = None, registry: str | None = None) -> State[BuildResult]:
    """Take a recipe through fetch, quantize, check, evaluate, gate and publish.

    Args:
        recipe: Path of the recipe on the worker.
        overrides: Fields to set, each ``field.path=value``.
        registry: ``s3://bucket/prefix`` or ``file:///directory``, instead of the recipe's.
    """
    home = Home.find()
    plan = make_plan(Path(recipe), tuple(overrides or ()), home, registry)
    if problems := problems_with_machine(plan, home.store):
        raise BadRequest(problems)
    result = run_plan(plan, home, listener.get() or log_events(get_run_logger()))
    if result.ok:
        return Completed(message=f"{len(result.releases)} published", data=result)
    held = ", ".join(f"{row.line} ({row.verdict})" for row in result.releases if row.release_id is None)
    return Failed(message=f"not published: {held}", data=result)


def run_plan(plan: Plan, home: Home, on_event: OnStageEvent) -> BuildResult:
    """Carry a plan out from within a flow run: every stage is a task run with its own logs and retries."""
    threads = max(1, cores() // SLOTS)
    shop = Workshop(Store(home.store), home.root, threads=threads, on_event=on_event, stop=interrupted)
    build = Build(plan, shop)

    @task(
        name="stage",
        task_run_name="{name}",
        retries=RETRIES,
        retry_delay_seconds=[2, 10, 30],
        retry_jitter_factor=0.5,
        retry_condition_fn=_worth_retrying,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def run_one(name: str) -> StageResult | None:
        return build.run(name)

    def start(planned: PlannedStage) -> Future[StageResult | None]:
        tagged: Any = run_one.with_options(tags=[planned.stage.kind])
        return _plain(tagged.submit(planned.name))

    build.execute(start, SLOTS)
    result = collect(plan, build.digests, build.failures, build.ran, shop.store)
    create_table_artifact(
        key="releases",
        table=[row.model_dump(mode="json") for row in result.releases],
        description=f"Variants of {plan.recipe.model}",
    )
    return result


def log_events(logger: logging.Logger | logging.LoggerAdapter[Any]) -> OnStageEvent:
    """Worker events as log lines: what is said, and a line for every tenth of the way."""
    tenths: dict[str, int] = {}

    def on_event(stage: str, event: dict[str, Any]) -> None:
        if event["event"] == "log":
            logger.info("%s: %s", stage, event["message"])
        elif event["event"] in ("error", "failed"):
            logger.error("%s: %s", stage, event["message"])
        elif event["event"] == "progress" and event.get("total"):
            tenth = int(10 * event["done"] / event["total"])
            if tenth != tenths.get(stage):
                tenths[stage] = tenth
                logger.info("%s: %s of %s %s", stage, event["done"], event["total"], event["unit"])

    return on_event


def _worth_retrying(_task: Any, _run: Any, state: State[Any]) -> bool:
    error = cast("BaseException | None", state.result(raise_on_failure=False))
    return isinstance(error, StageFailed) and error.cause in RETRYABLE


def _plain(future: Any) -> Future[StageResult | None]:
    """The task's outcome as an ordinary future: its value, or the error that ended it."""
    plain: Future[StageResult | None] = Future()

    def settle(finished: Any) -> None:
        try:
            outcome = finished.result(raise_on_failure=False)
        except BaseException as error:
            outcome = error
        if isinstance(outcome, BaseException):
            plain.set_exception(outcome)
        else:
            plain.set_result(outcome)

    future.add_done_callback(settle)
    return plain
