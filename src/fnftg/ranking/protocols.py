"""A protocol names the three things that decide what a rank means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fnftg.errors import FnftgError
from fnftg.kg.blocks import split_rank
from fnftg.kg.graph import KnowledgeGraph, Triples
from fnftg.kg.statistics import entities_of


@dataclass(frozen=True)
class Protocol:
    visible: Literal[
        "own-split", "cumulative"
    ]  # edges around an entity: the split's own, or of the splits before it too
    hidden: Literal["target", "pair"]  # while a triple is asked for: itself, or every edge between its two entities
    candidates: Literal["dynamic", "transfer"] = "dynamic"  # entities of train and the split, or of the split alone

    def visible_triples(self, graph: KnowledgeGraph, split: str) -> Triples:
        if self.visible == "own-split":
            return graph.triples(split)
        return np.concatenate([graph.splits[name] for name in self._up_to(graph, split)])

    def candidate_entities(self, graph: KnowledgeGraph, split: str) -> npt.NDArray[np.int32]:
        if self.candidates == "transfer":
            return entities_of(graph.triples(split))
        return entities_of(np.concatenate([graph.splits[name] for name in self._up_to(graph, split)]))

    def _up_to(self, graph: KnowledgeGraph, split: str) -> list[str]:
        return [name for name in sorted(graph.splits, key=split_rank) if split_rank(name) <= split_rank(split)]


PROTOCOLS = {
    "paper": Protocol("own-split", "target"),
    "statik": Protocol("cumulative", "target"),
    "strict": Protocol("cumulative", "pair"),
}


def protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise FnftgError(f"There is no protocol {name!r}: choose one of {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]
