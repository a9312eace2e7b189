"""Recipes: named configs, stored as YAML files in this folder.

A recipe sets only the fields that differ from its `base`, another recipe. A file named DATASET-SIZE.yaml defines one
recipe for each size of the paper's BERTs. Files whose names start with an underscore are only used as bases and are not
listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fnftg.console import log
from fnftg.errors import FnftgError, one_line
from fnftg.kernels.vector_index import faiss

FOLDER = Path(__file__).parent
SIZES = ("tiny", "mini", "small", "medium", "base")  # of the paper's BERTs
DEFAULT, LARGE = "frugal", "frugal-large"
MANY = 250_000  # entities, above which the default is LARGE
Fields = dict[str, Any]  # nested, as in YAML


def recipes() -> dict[str, str]:
    """Return the name and one-line description of every recipe; the default is first, the paper's are last."""
    stems = sorted((path.stem for path in FOLDER.glob("[!_]*.yaml")), key=lambda stem: ("SIZE" in stem, stem))
    names = [stem.replace("SIZE", size) for stem in stems for size in (SIZES if "SIZE" in stem else ("",))]
    return {name: _text(name).partition("\n")[0].removeprefix("# ") for name in names}


def recipe_fields(recipe: str | Path | Mapping[str, Any]) -> Fields:
    """Return the fields of a recipe, merged with those of its bases.

    Args:
        recipe: a name, a YAML or JSON file, or a dict of fields; a file or dict may name a `base`.

    Raises:
        FnftgError: if there is no such recipe, or it cannot be read.

    Examples:
        >>> recipe_fields({"base": "frugal", "training": {"epochs": 2}})["training"]["epochs"]
        2
    """
    if isinstance(recipe, Mapping):
        return _upon_base(dict(recipe), "the recipe", ())
    return _with_bases(str(recipe), ())


def recipe_of_system(system: str) -> str | None:
    """Return the default recipe of a system; None if it has only the defaults of its config."""
    name = DEFAULT if system == "fnf" else f"{DEFAULT}-{system}"
    return name if (FOLDER / f"{name}.yaml").is_file() else None


def default_recipe(entities: int) -> str:
    """Return the recipe for a graph with this many entities, and log a line if it is not the usual one.

    Raises:
        FnftgError: if the recipe needs a library that is not installed.
    """
    if entities <= MANY:
        return DEFAULT
    log(f"The graph has {entities:,} entities: training with {LARGE}, the recipe for more than {MANY:,}.")
    faiss()  # nearest texts need it: better told now than when all texts are encoded
    return LARGE


def merge_fields(base: Fields, over: Fields) -> Fields:
    """Merge nested fields; those of `over` replace those of `base`."""
    both = {
        key: merge_fields(base[key], over[key])
        for key in base.keys() & over.keys()
        if isinstance(base[key], dict) and isinstance(over[key], dict)
    }
    return {**base, **over, **both}


def _with_bases(name: str, above: tuple[str, ...]) -> Fields:
    if name in above:
        raise FnftgError(f"The recipe {name} is its own base: {' → '.join([*above, name])}.")
    return _upon_base(_parsed(_text(name), name), name, (*above, name))


def _upon_base(fields: Fields, name: str, above: tuple[str, ...]) -> Fields:
    """Merge the fields of the recipe `name` into those of its base; `above` are the recipes that lead to it."""
    base = fields.pop("base", None)
    if base is None:
        return fields
    if not isinstance(base, str):
        raise FnftgError(f"The base of {name} cannot be {base!r}: write the name of a recipe or of a file.")
    if Path(name).is_file() and (sibling := Path(name).parent / base).is_file():
        base = str(sibling)  # paths are relative to the file
    return merge_fields(_with_bases(base, above), fields)


def _text(name: str) -> str:
    """Return the YAML of a file or of a recipe."""
    path = Path(name)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FnftgError(f"{path} cannot be read as YAML or JSON: {error}.") from error
    stem, _, size = name.rpartition("-")
    for own, written in ((name, ""), (f"{stem}-SIZE", size if size in SIZES else "")):
        path = FOLDER / f"{own}.yaml"
        if path.parent == FOLDER and path.is_file() and ("SIZE" in own) == bool(written):
            return path.read_text(encoding="utf-8").replace("SIZE", written)
    raise FnftgError(f"There is no recipe {name!r}: choose {', '.join(recipes())}, or give a file.")


def _parsed(text: str, name: str) -> Fields:
    import yaml

    try:
        fields = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # a ValueError for numbers and dates that cannot be
        raise FnftgError(f"{name} cannot be read as YAML or JSON: {one_line(error)}.") from error
    if not isinstance(fields, dict):
        raise FnftgError(f"{name} has no fields: write them like model: {{ego: {{num_neighbours: 10}}}}.")
    return fields
