"""`fnftg.train`: from a graph and a recipe to a trained model."""

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
from fnftg.training.recipes import DEFAULT, merge_fields, recipe_fields
from fnftg.training.run_config import RunConfig


def train(
    graph: KnowledgeGraph | str | os.PathLike[str],
    recipe: str | os.PathLike[str] | Mapping[str, Any] = DEFAULT,
    *,
    output: str | os.PathLike[str],
    config: RunConfig | None = None,
    after_step: Callable[[int, float], None] | None = None,
    **overrides: Any,
) -> LinkPredictor:
    """Trains a model on a graph and returns the best one by validation MRR.

    The folder `output` gets the config, the log, restart points and the best checkpoint: `fnftg.load(output)` answers
    questions with it, and `fnftg train --resume` continues it if it was stopped.

    Args:
        graph: a graph, the folder of a store, a file that `fnftg import` reads, or the name of a dataset.
        recipe: the name of a recipe (see `fnftg recipes`), a YAML file, or nested fields, which may name a `base`.
        output: the folder of the run, which must not exist yet.
        config: a whole config, used instead of the recipe.
        after_step: called after each step with the number of the step and its loss.
        overrides: fields of `system`, `model`, `training` and `trainer` to change in the recipe.

    Examples:
        >>> model = fnftg.train("wordnet-animals", recipe="frugal", output="run", training={"epochs": 2})
        >>> fnftg.evaluate(model, "wordnet-animals")["mrr"]
        >>> fnftg.load("run").tails("dog.n.01", "hypernym")
    """
    if config is None:
        fields = recipe_fields(recipe if isinstance(recipe, Mapping) else Path(recipe))
        config = from_dict(RunConfig, merge_fields(fields, overrides))
    elif overrides:
        raise FnftgError(f"A whole config was given: set {', '.join(overrides)} in it.")
    opened = graph if isinstance(graph, KnowledgeGraph) else open_graph(graph)
    return train_run(opened, config, Path(output), data_home() / "texts", after_step=after_step)
