"""The texts of a graph as numbered rows: N entities, R relations, R inverse relations.

Entity e is row e. Relation label l is row N + l, where l < R is the relation l and l ≥ R is the inverse of l − R.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fnftg.arrays import BoolArray, Int64Array
from fnftg.checksums import MANIFEST
from fnftg.json_files import read_json
from fnftg.kg.graph import KnowledgeGraph
from fnftg.kg.strings import StringList, blocks

INVERSE = "inverse of "
BLOCK = 20_000  # texts in memory at a time


class GraphLines:
    """All N + 2R texts in the order of their rows. Can be iterated repeatedly."""

    def __init__(self, graph: KnowledgeGraph):
        self.graph = graph

    def __iter__(self) -> Iterator[str]:
        for block in text_blocks(self.graph):
            yield from block

    def __len__(self) -> int:
        return len(self.graph.entities) + 2 * len(self.graph.relations)


def text_blocks(graph: KnowledgeGraph, first_entity: int = 0, first_relation: int = 0) -> Iterator[list[str]]:
    """Yield the texts in the order of their rows, of the entities and relations from the given rows on."""
    relations = graph.relations.texts.slice(first_relation, len(graph.relations))
    for start in range(first_entity, len(graph.entities), BLOCK):
        yield graph.entities.texts.slice(start, start + BLOCK)
    yield relations
    yield [INVERSE + text for text in relations]


def leading_words(text: str, words: int) -> str:
    """Return the first words of a text, which is what a model reads of it."""
    return " ".join(text.split(None, words)[:words])


def texts_key(graph: KnowledgeGraph) -> str:
    """Return a hash of all texts. It is the same for a graph in memory and for its store, whose manifest has it."""
    if graph.path is not None:
        files = read_json(graph.path / MANIFEST)["files"]
        digests = [files[f"{kind}.texts.txt"]["sha256"] for kind in ("entities", "relations")]
    else:
        digests = [_digest(vocabulary.texts) for vocabulary in (graph.entities, graph.relations)]
    return content_key(*digests)


def graph_key(graph: KnowledgeGraph) -> str:
    """Return a hash of a graph's texts and triples, which tells whether a run was trained on this graph."""
    triples = [
        hashlib.sha256(np.ascontiguousarray(graph.splits[split]).data).hexdigest() for split in sorted(graph.splits)
    ]
    return content_key(texts_key(graph), *sorted(graph.splits), *triples)


def content_key(*parts: object) -> str:
    """Return a short hash of the values that determine some content."""
    contents = (part if isinstance(part, bytes | memoryview) else str(part).encode() for part in parts)
    digests = [hashlib.sha256(content).digest() for content in contents]
    return hashlib.sha256(b"".join(digests)).hexdigest()[:32]


def _digest(texts: StringList) -> str:
    digest = hashlib.sha256()
    for block in blocks(texts, BLOCK):
        digest.update(("\n".join(block) + "\n").encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class ViewRows:
    """The mapping from the rows of a view to those of the graph that it extends and those of the texts that it adds."""

    entities: int  # N of the graph
    relations: int  # R of the graph
    new_entities: int
    new_relations: int

    def split(self, rows: Int64Array) -> tuple[BoolArray, Int64Array]:
        """Return whether each row is new, and its row among the new texts or in the base graph, (n,) each."""
        lengths = (self.entities, self.new_entities, *(self.relations, self.new_relations) * 2)
        ends = np.cumsum(lengths)
        segment = np.searchsorted(ends, rows, side="right")  # even: in the base graph, odd: new
        before = np.array([0, 0, self.entities, self.new_entities, *self._before_inverse()])
        within = rows - (ends - lengths)[segment]
        return segment % 2 == 1, within + before[segment]

    def new_rows(self) -> Int64Array:
        """Return the view's rows of the texts that it adds, in order."""
        entities, relations = self.entities + self.new_entities, self.relations + self.new_relations
        labels = np.arange(self.relations, relations)
        return np.concatenate([np.arange(self.entities, entities), entities + labels, entities + relations + labels])

    def _before_inverse(self) -> tuple[int, int]:
        return self.entities + self.relations, self.new_entities + self.new_relations
