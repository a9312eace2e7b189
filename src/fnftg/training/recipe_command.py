"""`fnftg recipes`: lists the recipes, or prints one to copy and change."""

from __future__ import annotations

import argparse

from fnftg.console import print_json, print_table
from fnftg.kg.commands.shared_arguments import add_json, examples
from fnftg.training.recipes import recipe_fields, recipes


def show_recipes(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    parser.epilog = examples(
        "fnftg recipes",
        "fnftg recipes frugal",
        "fnftg recipes frugal > my.yaml && fnftg train wordnet-animals -o animals --config my.yaml",
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="print all fields of this recipe, or of a file, as YAML"
    )
    add_json(parser)
    chosen = parser.parse_args(arguments)
    if chosen.name:
        print_recipe(chosen.name, chosen.json)
    elif chosen.json:
        print_json([{"name": name, "summary": summary} for name, summary in recipes().items()])
    else:
        note = "fnftg recipes NAME prints one; fnftg train GRAPH -o RUN --config NAME trains with it."
        print_table("Recipes", ["name", "what it trains"], list(recipes().items()), note)


def print_recipe(name: str, as_json: bool) -> None:
    """Prints every field that a run has, also those that the recipe leaves at their defaults."""
    from dataclasses import asdict

    from fnftg.models.configs import from_dict
    from fnftg.training.config_yaml import to_yaml
    from fnftg.training.run_config import RunConfig

    config: RunConfig = from_dict(RunConfig, recipe_fields(name))
    if as_json:
        print_json(asdict(config))
        return
    summary = recipes().get(name)
    print(f"# {name}: {summary}" if summary else f"# {name}")
    print("# Change what you like and train with: fnftg train GRAPH -o RUN --config my.yaml")
    print(f"# A file may also name a recipe and set only what differs: base: {name}\n")
    print(to_yaml(config))
