"""Tables and lines for people. Everything here prints to stdout."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.registry import Registry
from artifacts.release import Release
from builders.estimates import in_words
from flows.machine import memory_note, problems_with_machine
from flows.plan import Plan
from flows.result import BuildResult, LineResult


def print_plan(plan: Plan, store: Path) -> None:
    rows: list[tuple[str, ...]] = [("STATUS", "STAGE", "KEY", "WRITES", "MEMORY")]
    for stage in plan.stages:
        estimate = stage.estimate
        sizes: tuple[str, ...] = (
            (in_words(estimate.output_bytes), in_words(estimate.memory_bytes)) if estimate else ("", "")
        )
        rows.append((stage.status, stage.name, stage.key[:12], *sizes))
    _table(rows)
    todo = len(plan.todo)
    click.echo(
        f"\n{todo} of {len(plan.stages)} stages to run; releases go to {plan.registry}" if todo else "\nNothing to do."
    )
    for name, command in plan.commands.items():
        click.echo(f"\n{name}\n  {command}")
    for note in (*plan.notes, memory_note(plan), *map(str, problems_with_machine(plan, store))):
        if note:
            click.echo(f"note: {note}")


def print_build(result: BuildResult) -> None:
    rows = [("VARIANT", "SCHEME", "SIZE", "DROP", "BOUNDS", "MARGIN", "VERDICT", "RELEASE")]
    rows += [
        (
            row.line,
            row.scheme,
            _size(row, result),
            _points(row.drop),
            _bounds(row),
            _points(row.margin),
            row.verdict,
            row.release_id or "-",
        )
        for row in result.releases
    ]
    _table(rows)
    click.echo("Drop: accuracy of the original minus that of the variant, in points, with one-sided bounds.\n")
    for row in result.releases:
        if row.release_id is None:
            click.echo(f"{row.line}: not published. {row.reason}")
        else:
            note = "  # not evaluated" if row.verdict == "NOT RUN" else ""
            click.echo(f"{row.line}: {row.serve}{note}")
    published = [row for row in result.releases if row.release_id and row.line == row.variant]
    if published:
        click.echo(f'\nTry one here: engineworks try {published[0].release_id} "Name three primary colors."')
    click.echo(f"{result.stages.ran} stages ran, {result.stages.cached} were there already.")


def print_releases(registry: Registry, releases: list[Release]) -> None:
    if not releases:
        click.echo(f"No releases in {registry.storage.url}.")
        return
    rows = [("RELEASE", "SCHEME", "SIZE", "DROP", "AT MOST", "DOCUMENTS")]
    for release in releases:
        verdict = release.verdict
        rows.append(
            (
                str(release.ref),
                release.scheme,
                in_words(release.bytes),
                _points(verdict.drop),
                _points(verdict.upper_bound),
                str(verdict.documents),
            )
        )
    _table(rows)


def print_release(registry: Registry, release: Release) -> None:
    verdict = release.verdict
    click.echo(f"{release.ref}\n{registry.location(release.ref)}\n")
    engine = release.engine
    lines = {
        "scheme": f"{release.scheme} by {release.tool}",
        "source": " ".join(
            str(value)
            for name, value in release.source.items()
            if name in ("kind", "repo", "revision", "package", "uri", "path", "file")
        ),
        "targets": ", ".join(release.targets),
        "verdict": (
            f"{verdict.outcome}: drop {_points(verdict.drop)}, at most {_points(verdict.upper_bound)} with "
            f"{verdict.confidence:.0%} confidence; margin {_points(verdict.margin)}, {verdict.documents} documents"
        ),
        "size": f"{in_words(release.bytes)} in {len(release.files)} files",
    }
    if engine:
        lines["engine"] = (
            f"{engine.gpu} (SM {engine.sm}), TensorRT-LLM {engine.tensorrt_llm}, TensorRT {engine.tensorrt}, "
            f"driver {engine.driver}, {engine.ranks} ranks"
        )
    for name, value in lines.items():
        click.echo(f"{name:9}{value}")
    click.echo("")
    _table(
        [("FILE", "BYTES", "SHA256"), *((entry.path, str(entry.size), entry.sha256[:16]) for entry in release.files)]
    )


def _size(row: LineResult, result: BuildResult) -> str:
    if row.bytes is None:
        return "-"
    share = f" ({row.bytes / result.original_bytes:.0%})" if result.original_bytes else ""
    return in_words(row.bytes) + share


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _bounds(row: LineResult) -> str:
    return "-" if row.upper_bound is None else f"{_points(row.lower_bound)} to {_points(row.upper_bound)}"


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
