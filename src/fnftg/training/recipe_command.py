"""`fnftg recipes`: lists the recipes, or prints one to copy and change."""

from __future__ import annotations

import argparse

from fnftg.console import print_json, print_table, print_text
from fnftg.kg.commands.shared_arguments import add_json, examples
from fnftg.training.recipes import recipe_fields, recipes


def show_recipes(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg recipes",
        "fnftg recipes frugal",
        "fnftg recipes frugal > my.yaml && fnftg train wordnet-animals -o animals --config my.yaml",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="recipe or YAML file to print with all its fields")
    add_json(parser)
    chosen = parser.parse_args(arguments)
    if chosen.name:
        print_recipe(chosen.name, chosen.json)
    elif chosen.json:
        print_json([{"name": name, "summary": summary} for name, summary in recipes().items()])
    else:
        note = "Print a recipe with fnftg recipes NAME, train with fnftg train GRAPH -o RUN --config NAME."
        print_table("Recipes", ["name", "what it trains"], list(recipes().items()), note)


def print_recipe(name: str, as_json: bool) -> None:
    """Print all fields of a recipe, including those with default values."""
    from dataclasses import asdict

    from fnftg.models.configs import from_dict
    from fnftg.training.config_yaml import to_yaml
    from fnftg.training.run_config import RunConfig

    config: RunConfig = from_dict(RunConfig, recipe_fields(name))
    if as_json:
        print_json(asdict(config))
        return
    summary = recipes().get(name)
    print_text(f"# {name}: {summary}" if summary else f"# {name}")
    print_text("# Save it as my.yaml, edit it and train with: fnftg train GRAPH -o RUN --config my.yaml")
    print_text(f"# A shorter file sets only the fields that differ from a recipe, with the line: base: {name}\n")
    print_text(to_yaml(config))
