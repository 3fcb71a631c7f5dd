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


def main() -> None:
    """Entry point: errors of ours are printed without a traceback and give their own exit code."""
    try:
        cli()
    except EngineworksError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
