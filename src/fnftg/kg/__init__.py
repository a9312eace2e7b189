"""The knowledge graph: from any files that people have to memory-mapped arrays."""

from fnftg.kg.graph import KnowledgeGraph, Vocabulary
from fnftg.kg.importing import import_graph
from fnftg.kg.opening import open_graph

__all__ = ["KnowledgeGraph", "Vocabulary", "import_graph", "open_graph"]
