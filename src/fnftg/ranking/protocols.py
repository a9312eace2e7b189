"""A protocol names the three things that decide what a rank means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fnftg.arrays import Int32Array
from fnftg.errors import FnftgError
from fnftg.kg.blocks import split_rank
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.statistics import entities_of


@dataclass(frozen=True)
class Protocol:
    visible: Literal["own-split", "cumulative"]  # edges that may be seen: the split's own, or of earlier splits too
    hidden: Literal["target", "pair"]  # while a triple is asked for: itself, or every edge between its two entities
    candidates: Literal["dynamic", "transfer"] = "dynamic"  # entities of train and the split, or of the split alone

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise FnftgError(
                    f"A protocol's {name} cannot be {getattr(self, name)!r}: choose {' or '.join(choices)}."
                )

    @property
    def name(self) -> str:
        """The preset's name, or the choices that it is made of."""
        names = [name for name, preset in PROTOCOLS.items() if preset == self]
        return names[0] if names else f"{self.visible}-{self.hidden}-{self.candidates}"

    def described(self) -> dict[str, Any]:
        choices = {name: getattr(self, name) for name in CHOICES}
        words = "; ".join(CHOICES[name][choice] for name, choice in choices.items())
        return {"name": self.name, **choices, "words": f"{words}."}

    def visible_triples(self, graph: KnowledgeGraph, split: str) -> Triples:
        if self.visible == "own-split":
            return graph.triples(split)
        return np.concatenate([graph.splits[name] for name in self._up_to(graph, split)])

    def candidate_entities(self, graph: KnowledgeGraph, split: str) -> Int32Array:
        if self.candidates == "transfer":
            return entities_of(graph.triples(split))
        return entities_of(np.concatenate([graph.splits[name] for name in self._up_to(graph, split)]))

    def _up_to(self, graph: KnowledgeGraph, split: str) -> list[str]:
        return [name for name in sorted(graph.splits, key=split_rank) if split_rank(name) <= split_rank(split)]


CHOICES = {
    "visible": {
        "own-split": "Visible are the edges of the split itself",
        "cumulative": "Visible are the edges of the split and of those before it",
    },
    "hidden": {
        "target": "hidden from a query is the triple that is asked for",
        "pair": "hidden from a query is every edge between the two entities of its triple",
    },
    "candidates": {
        "dynamic": "candidates are the entities of the split and of those before it",
        "transfer": "candidates are the entities of the split alone",
    },
}
PROTOCOLS = {
    "own-split": Protocol("own-split", "target"),
    "cumulative": Protocol("cumulative", "target"),
    "strict": Protocol("cumulative", "pair"),
}
DEFAULT_PROTOCOL = "cumulative"
FORMER_NAMES = {"paper": "own-split", "statik": "cumulative"}


def protocol(name: str) -> Protocol:
    """A preset by its name."""
    if name in FORMER_NAMES:
        raise FnftgError(f"The protocol {name!r} is called {FORMER_NAMES[name]} now.")
    if name not in PROTOCOLS:
        raise FnftgError(f"There is no protocol {name!r}: choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
