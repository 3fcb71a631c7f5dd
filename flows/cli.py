"""The ``engineworks`` command. Imports wait until a command needs them: ``--help`` must be instant."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.channel_commands import history, promote, rollback
from flows.command_options import JSON, REGISTRY, find, open_registry, with_home
from recipes.errors import EngineworksError

if TYPE_CHECKING:
    from artifacts.home import Home

RECIPE = click.argument("recipe", type=click.Path(path_type=Path))
SET = click.option(
    "--set", "overrides", multiple=True, metavar="FIELD.PATH=VALUE", help="Override a field of the recipe."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="engineworks")
def cli() -> None:
    """From a Hugging Face checkpoint to serving artifacts that are proven."""


@cli.command()
@RECIPE
@SET
@JSON
def validate(recipe: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Check a recipe's fields, types and names."""
    from recipes.loading import load_recipe

    loaded = load_recipe(recipe, overrides)
    if as_json:
        click.echo(json.dumps(loaded.model_dump(mode="json")))
    else:
        click.echo(f"{recipe}: {loaded.model} with {len(loaded.variants)} variants ({', '.join(loaded.variants)})")


@cli.command()
def schema() -> None:
    """Print the recipe's JSON Schema."""
    from recipes.schema import recipe_schema

    click.echo(recipe_schema(), nl=False)


@cli.command()
@RECIPE
def pin(recipe: Path) -> None:
    """Write the commit that the recipe's Hub revision stands for now into it."""
    from flows.pin import pin as write_pin

    commit, changed = write_pin(recipe)
    click.echo(f"{recipe}: {'pinned to' if changed else 'already at'} {commit}")


@cli.command()
@RECIPE
@SET
@REGISTRY
@JSON
@with_home
def plan(recipe: Path, overrides: tuple[str, ...], registry: str | None, home: Home, *, as_json: bool) -> None:
    """Show the stages of a build, what is stored already, and refuse what can't work."""
    from flows.plan import make_plan
    from flows.show import print_plan

    planned = make_plan(recipe, overrides, home, registry)
    if not as_json:
        print_plan(planned, home.store)
        return
    stages = [
        {"name": stage.name, "key": stage.key, "status": stage.status}
        | (
            {"output_bytes": stage.estimate.output_bytes, "memory_bytes": stage.estimate.memory_bytes}
            if stage.estimate
            else {}
        )
        for stage in planned.stages
    ]
    click.echo(
        json.dumps(
            {"stages": stages, "registry": planned.registry, "notes": planned.notes, "commands": planned.commands}
        )
    )


@cli.command()
@RECIPE
@SET
@REGISTRY
@JSON
@with_home
def build(recipe: Path, overrides: tuple[str, ...], registry: str | None, home: Home, *, as_json: bool) -> None:
    """Build, judge and publish every variant of a recipe. Exits 1 if one is not published."""
    from artifacts.storage import open_storage
    from artifacts.store import Store
    from flows.machine import problems_with_machine
    from flows.plan import make_plan
    from flows.result import collect
    from flows.show import print_build
    from recipes.errors import BadRequest

    planned = make_plan(recipe, overrides, home, registry)
    if problems := problems_with_machine(planned, home.store):
        raise BadRequest(problems)
    if planned.todo:
        open_storage(planned.registry).check()
        from flows.local import run_here

        result = run_here(recipe, overrides, registry, quiet=as_json)
    else:
        digests = {stage.name: stage.artifact for stage in planned.stages if stage.artifact}
        result = collect(planned, digests, {}, 0, Store(home.store))
    if as_json:
        click.echo(result.model_dump_json())
    else:
        print_build(result)
    sys.exit(0 if result.ok else 1)


@cli.command(name="try")
@click.argument("release")
@click.argument("prompt")
@click.option("--max-new-tokens", default=128, show_default=True, type=click.IntRange(1, 4096))
@REGISTRY
@JSON
@with_home
def try_release(
    release: str, prompt: str, max_new_tokens: int, registry: str | None, home: Home, *, as_json: bool
) -> None:
    """Let a release answer a prompt on this machine."""
    from flows.answer import answer
    from flows.progress import shown

    releases = open_registry(registry, home)
    ref = releases.find(release)
    with shown(quiet=as_json) as listener:
        text = answer(releases, ref, prompt, max_new_tokens, home, listener)
    click.echo(json.dumps({"release": str(ref), "text": text}) if as_json else text)


@cli.command(name="list")
@click.argument("model", required=False)
@REGISTRY
@JSON
@with_home
def list_releases(model: str | None, registry: str | None, home: Home, *, as_json: bool) -> None:
    """List published releases."""
    from flows.show import print_releases

    there = open_registry(registry, home)
    releases = [there.release(ref) for ref in there.releases(model)]
    if as_json:
        rows = [
            {
                "release_id": r.release_id,
                "model": r.model,
                "variant": r.variant,
                "scheme": r.scheme,
                "bytes": r.bytes,
                "verdict": r.verdict.model_dump(),
            }
            for r in releases
        ]
        click.echo(json.dumps({"registry": there.storage.url, "releases": rows}))
    else:
        print_releases(there, releases)


@cli.command()
@click.argument("release")
@REGISTRY
@JSON
@with_home
def show(release: str, registry: str | None, home: Home, *, as_json: bool) -> None:
    """Show one release: evidence, files, where it is."""
    from flows.show import print_release

    there = open_registry(registry, home)
    found = there.release(there.find(release))
    if as_json:
        document = {
            "release_id": found.release_id,
            "location": there.location(found.ref),
            **found.model_dump(mode="json"),
        }
        click.echo(json.dumps(document))
    else:
        print_release(there, found)


@cli.command()
@click.argument("release", metavar="RELEASE | MODEL/VARIANT")
@click.argument("destination", type=click.Path(path_type=Path), required=False)
@click.option("--channel", help="What this channel of MODEL/VARIANT points at: production, …")
@click.option("--force", is_flag=True, help="Fetch an engine that this machine can't load.")
@REGISTRY
@JSON
@with_home
def pull(
    release: str,
    destination: Path | None,
    channel: str | None,
    registry: str | None,
    home: Home,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Bring a release to DESTINATION (default: pulled/RELEASE), verified; resumes what was begun."""
    from artifacts.pull import pull as fetch
    from builders.trtllm.machine import Machine, problems_with_engine
    from flows.progress import bytes_shown
    from recipes.errors import BadRequest

    there = open_registry(registry, home)
    ref = find(there, release, channel)
    engine = there.release(ref).engine
    if engine and not force and (problems := list(problems_with_engine(engine, Machine.here()))):
        raise BadRequest(problems)
    with bytes_shown(f"pull {ref.release_id}", quiet=as_json) as progress:
        path = fetch(there, ref, destination or Path("pulled") / ref.release_id, progress)
    click.echo(json.dumps({"release": str(ref), "path": str(path)}) if as_json else f"{ref} is in {path}")


@cli.command()
@click.argument("release", metavar="RELEASE | MODEL/VARIANT")
@click.option("--channel", help="What this channel of MODEL/VARIANT points at: production, …")
@REGISTRY
@JSON
@with_home
def verify(release: str, channel: str | None, registry: str | None, home: Home, *, as_json: bool) -> None:
    """Check every byte of a published release against its manifest. Exits 1 if anything is wrong."""
    from artifacts.verify import verify as check
    from flows.progress import bytes_shown

    there = open_registry(registry, home)
    ref = find(there, release, channel)
    with bytes_shown(f"verify {ref.release_id}", quiet=as_json) as progress:
        problems = list(check(there, ref, progress))
    if as_json:
        findings = [{"path": p.where, "seen": p.seen, "wanted": p.wanted} for p in problems]
        click.echo(json.dumps({"release": str(ref), "ok": not problems, "problems": findings}))
    else:
        click.echo("\n".join(map(str, problems)) or f"{ref}: every byte is as the manifest says")
    sys.exit(1 if problems else 0)


@cli.group()
def store() -> None:
    """The build store."""


@store.command()
@click.option(
    "--older-than-days", default=30.0, show_default=True, type=click.FloatRange(min=0), help="Not used for so long."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@JSON
@with_home
def gc(older_than_days: float, home: Home, *, dry_run: bool, as_json: bool) -> None:
    """Remove what no recent build used."""
    from artifacts.gc import collect_garbage
    from artifacts.store import Store
    from builders.estimates import in_words

    gone = collect_garbage(Store(home.store), older_than_days, dry_run=dry_run)
    if as_json:
        click.echo(gone.model_dump_json())
    else:
        verb = "would remove" if dry_run else "removed"
        click.echo(f"{verb} {gone.records} records and {gone.artifacts} artifacts, {in_words(gone.bytes)}")


@cli.command(name="import-command")
@click.argument("command")
@click.option("--tensorrt-llm", "version", default="1.2.1", show_default=True, help="Release to bring the command to.")
@JSON
def import_command(command: str, version: str, *, as_json: bool) -> None:
    """Turn a trtllm-build COMMAND of any release into recipe options, and say what changed."""
    from builders.trtllm.import_command import import_command as imported_from
    from builders.trtllm.options import command_line, in_words

    imported = imported_from(command, version)
    if as_json:
        click.echo(json.dumps({"options": imported.options, "notes": imported.notes}))
        return
    click.echo("\n".join(f"{name}: {json.dumps(value)}" for name, value in imported.options.items()))
    click.echo("\n# " + in_words("trtllm-build", command_line(imported.options)))
    for note in imported.notes:
        click.echo(f"# {note}")


@cli.command()
@click.option("--target", metavar="CARD[:RUNTIME]", help="Can this machine build and serve for that target?")
@REGISTRY
@JSON
@with_home
def doctor(target: str | None, registry: str | None, home: Home, *, as_json: bool) -> None:
    """Say whether this machine is fit, or what it lacks. Exits 1 if not."""
    from flows.doctor import examine, examine_target

    checks = list(examine_target(target) if target else examine(home, registry))
    if as_json:
        click.echo(json.dumps({"checks": [check.model_dump() for check in checks]}))
    else:
        for check in checks:
            click.echo(f"{check.status:8} {check.name:24} {check.detail}")
    sys.exit(1 if any(check.status == "problem" for check in checks) else 0)


for command in (promote, rollback, history):
    cli.add_command(command)


def main() -> None:
    """Entry point: our errors are printed without a traceback and give their own exit code."""
    from flows.interrupt import interrupted, watch_signals

    watch_signals()
    try:
        cli(standalone_mode=False)
    except EngineworksError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (Exception, KeyboardInterrupt, click.Abort) as error:
        if not interrupted.is_set() and not isinstance(error, click.Abort):
            raise
        click.echo("interrupted; run the same command again to go on from here", err=True)
        sys.exit(130)
