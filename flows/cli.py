"""The ``engineworks`` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from recipes.errors import EngineworksError


@click.group()
@click.version_option(package_name="engineworks")
def cli() -> None:
    """From a Hugging Face checkpoint to serving artifacts that are proven."""


@cli.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="FIELD.PATH=VALUE", help="Override a field of the recipe.")
def validate(recipe: Path, overrides: tuple[str, ...]) -> None:
    """Check a recipe's fields, types and names."""
    from recipes.loading import load_recipe

    loaded = load_recipe(recipe, overrides)
    click.echo(f"{recipe}: {loaded.model} with {len(loaded.variants)} variants ({', '.join(loaded.variants)})")


@cli.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="FIELD.PATH=VALUE", help="Override a field of the recipe.")
@click.option("--home", type=click.Path(path_type=Path), help="Instead of $ENGINEWORKS_HOME.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plan(recipe: Path, overrides: tuple[str, ...], home: Path | None, *, as_json: bool) -> None:
    """Show the stages of a build, what is stored already, and refuse what can't work."""
    import json

    from artifacts.home import Home
    from flows.plan import make_plan, memory_note

    planned = make_plan(recipe, overrides, Home.find(home))
    if as_json:
        stages = [{"name": stage.name, "key": stage.key, "status": stage.status} for stage in planned.stages]
        click.echo(json.dumps({"stages": stages}))
        return
    for stage in planned.stages:
        click.echo(f"{stage.status:8}{stage.name:24}{stage.key[:12]}")
    for note in (*planned.notes, memory_note(planned)):
        if note:
            click.echo(f"note: {note}")


def main() -> None:
    """Entry point: errors of ours are printed without a traceback and give their own exit code."""
    try:
        cli()
    except EngineworksError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
