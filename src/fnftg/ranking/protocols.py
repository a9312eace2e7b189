"""Evaluation protocols: which edges are visible, which are hidden from a query, which entities are candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fnftg.arrays import BoolArray, Int32Array, Int64Array
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.graph_data import NO_TRIPLES
from fnftg.kg.statistics import entities_of


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol.

    Args:
        visible: own-split shows the edges of the split, cumulative also those of earlier splits; before shows those of
            earlier splits and of the support split, and none of the split.
        hidden: target hides the triple of the query, pair every edge between its two entities. Before hides them for
            all triples of the split at once, from every query and candidate.
        candidates: dynamic ranks the entities of the split and of earlier splits, transfer those of the split only.
        unseen_edges: hidden hides all edges of relations that train lacks (zero-shot), visible shows them (few-shot).
    """

    visible: Literal["own-split", "cumulative", "before"]
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
        """The preset, or the visible and hidden edges; then -transfer and -zero-shot where these are chosen."""
        preset = replace(self, candidates="dynamic", unseen_edges="visible")
        names = {rules: name for name, rules in PROTOCOLS.items()}
        name = names.get(preset, f"{self.visible}-{self.hidden}")
        name += "-transfer" if self.candidates == "transfer" else ""
        return name + ("-zero-shot" if self.unseen_edges == "hidden" else "")

    def described(self) -> dict[str, Any]:
        """Return the name, the choices and a sentence about them, for results."""
        choices = {name: getattr(self, name) for name in CHOICES}
        words = "; ".join(filter(None, (CHOICES[name][choice] for name, choice in choices.items())))
        return {"name": self.name, **choices, "words": f"{words}."}

    def visible_triples(self, graph: KnowledgeGraph, split: str) -> Triples:
        """Return the triples whose edges are visible when a split is ranked."""
        if self.visible == "before":
            ranked, earlier = graph.triples(split), earlier_triples(graph, split)
            triples = earlier[~self._hides(graph, ranked, earlier)]
        else:
            triples = graph.triples(split) if self.visible == "own-split" else graph.up_to(split).all_triples()
        if self.unseen_edges == "visible":
            return triples
        return triples[np.isin(triples[:, 1], graph.triples("train")[:, 1])]

    def candidate_entities(self, graph: KnowledgeGraph, split: str) -> Int32Array:
        """Return the entities that are candidates when a split is ranked, with or without a visible edge."""
        if self.candidates == "transfer":
            return entities_of(graph.triples(split))
        return entities_of(graph.up_to(split).all_triples())

    def _hides(self, graph: KnowledgeGraph, ranked: Triples, edges: Triples) -> BoolArray:
        """Return which edges (n, 3) the queries of the ranked triples (m, 3) hide: (n,)."""

        def keys(triples: Triples) -> Int64Array:
            heads, relations, tails = triples.astype(np.int64).T
            if self.hidden == "pair":
                return np.asarray(np.minimum(heads, tails) * len(graph.entities) + np.maximum(heads, tails))
            return np.asarray((heads * len(graph.relations) + relations) * len(graph.entities) + tails)

        return np.isin(keys(edges), keys(ranked))


def earlier_triples(graph: KnowledgeGraph, split: str) -> Triples:
    """Return the triples of the splits before a split; its support split is one of them."""
    earlier = [triples for name, triples in graph.up_to(split).splits.items() if name != split]
    return np.concatenate([NO_TRIPLES, *earlier])


CHOICES = {
    "visible": {
        "own-split": "The edges of the split are visible",
        "cumulative": "The edges of the split and of earlier splits are visible",
        "before": "The edges of earlier splits and of the support split are visible, and no edge of the split",
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
    "held-out": Protocol("before", "target"),
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
