"""Evaluation protocols: which edges are visible, which are hidden from a query, which entities are candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.statistics import entities_of


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol.

    Args:
        visible: own-split shows the edges of the split, cumulative also those of earlier splits.
        hidden: target hides the triple of the query, pair every edge between its two entities.
        candidates: dynamic ranks the entities of the split and of earlier splits, transfer those of the split only.
        unseen_edges: hidden hides all edges of relations that train lacks (zero-shot), visible shows them (few-shot).
    """

    visible: Literal["own-split", "cumulative"]
    hidden: Literal["target", "pair"]
    candidates: Literal["dynamic", "transfer"] = "dynamic"
    unseen_edges: Literal["visible", "hidden"] = "visible"

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise FnftgError(
                    f"A protocol's {name} cannot be {getattr(self, name)!r}: choose {' or '.join(choices)}."
                )

    @property
    def name(self) -> str:
        """The name of the preset, or of the choices; -zero-shot is appended where unseen edges are hidden."""
        few_shot = replace(self, unseen_edges="visible")
        names = [name for name, preset in PROTOCOLS.items() if preset == few_shot]
        name = names[0] if names else f"{self.visible}-{self.hidden}-{self.candidates}"
        return name if self == few_shot else f"{name}-zero-shot"

    def described(self) -> dict[str, Any]:
        """Return the name, the choices and a sentence about them, for results."""
        choices = {name: getattr(self, name) for name in CHOICES}
        words = "; ".join(filter(None, (CHOICES[name][choice] for name, choice in choices.items())))
        return {"name": self.name, **choices, "words": f"{words}."}

    def visible_triples(self, graph: KnowledgeGraph, split: str) -> Triples:
        """Return the triples whose edges are visible when a split is ranked."""
        triples = graph.triples(split) if self.visible == "own-split" else graph.up_to(split).all_triples()
        if self.unseen_edges == "visible":
            return triples
        return triples[np.isin(triples[:, 1], graph.triples("train")[:, 1])]

    def candidate_entities(self, graph: KnowledgeGraph, split: str) -> Int32Array:
        """Return the entities that are candidates when a split is ranked."""
        if self.candidates == "transfer":
            return entities_of(graph.triples(split))
        return entities_of(graph.up_to(split).all_triples())


CHOICES = {
    "visible": {
        "own-split": "The edges of the split are visible",
        "cumulative": "The edges of the split and of earlier splits are visible",
    },
    "hidden": {
        "target": "the triple of the query is hidden",
        "pair": "every edge between the two entities of the query's triple is hidden",
    },
    "candidates": {
        "dynamic": "candidates are the entities of the split and of earlier splits",
        "transfer": "candidates are the entities of the split only",
    },
    "unseen_edges": {"visible": "", "hidden": "no edge of a relation that train lacks is visible"},
}
PROTOCOLS = {
    "own-split": Protocol("own-split", "target"),
    "cumulative": Protocol("cumulative", "target"),
    "strict": Protocol("cumulative", "pair"),
}
DEFAULT_PROTOCOL = "cumulative"
FORMER_NAMES = {"paper": "own-split", "statik": "cumulative"}


def protocol(name: str) -> Protocol:
    """Look up a preset by name; raise FnftgError if there is none."""
    if name in FORMER_NAMES:
        raise FnftgError(f"The protocol {name!r} is now called {FORMER_NAMES[name]}.")
    if name not in PROTOCOLS:
        raise FnftgError(f"There is no protocol {name!r}: choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
