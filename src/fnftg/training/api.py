"""`fnftg.train`: train a model on a graph with a recipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fnftg.errors import FnftgError
from fnftg.kg.datasets import data_home
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.graph_source import open_graph
from fnftg.models.configs import from_dict
from fnftg.models.link_predictor import LinkPredictor
from fnftg.training.loop import train_run
from fnftg.training.recipes import default_recipe, merge_fields, recipe_fields
from fnftg.training.run_config import RunConfig


def train(
    graph: KnowledgeGraph | str | os.PathLike[str],
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    output: str | os.PathLike[str],
    config: RunConfig | None = None,
    after_step: Callable[[int, float], None] | None = None,
    **overrides: Any,
) -> LinkPredictor:
    """Train a model on a graph and return the checkpoint with the best validation MRR.

    The config, the log, restart points and the best checkpoint are written to the folder `output`. Use
    `fnftg.load(output)` to predict links with the model, and `fnftg train --resume` to continue an interrupted run.

    Args:
        graph: a graph, the folder of a store, a file that `fnftg import` reads, or the name of a dataset.
        recipe: the name of a recipe (see `fnftg recipes`), a YAML file, or a dict of fields, which may name a `base`;
            if None, frugal, or frugal-large for a large graph.
        output: the folder of the run; it must not exist.
        config: a complete config, used instead of the recipe.
        after_step: called after each step with the step number and its loss.
        overrides: fields of the recipe to change: `system`, `model`, `training` and `trainer`.

    Returns:
        The trained model, in evaluation mode.

    Raises:
        FnftgError: if the config is invalid, the graph has no training triples, or `output` exists.

    Examples:
        >>> model = fnftg.train("wordnet-animals", recipe="frugal", output="run", training={"epochs": 2})
        >>> fnftg.evaluate(model, "wordnet-animals")["mrr"]
        >>> fnftg.load("run").tails("dog.n.01", "hypernym")
    """
    opened = graph if isinstance(graph, KnowledgeGraph) else open_graph(graph)
    if config is None:
        chosen = default_recipe(len(opened.entities)) if recipe is None else recipe
        fields = recipe_fields(chosen if isinstance(chosen, Mapping) else Path(chosen))
        config = from_dict(RunConfig, merge_fields(fields, overrides))
    elif overrides:
        raise FnftgError(f"Fields cannot be overridden if config is given: set {', '.join(overrides)} in the config.")
    return train_run(opened, config, Path(output), data_home() / "texts", after_step=after_step)
