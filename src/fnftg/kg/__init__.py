"""Knowledge graphs: import, storage as memory-mapped arrays, named datasets, splits and audits."""

from fnftg.kg.graph import KnowledgeGraph, Vocabulary
from fnftg.kg.graph_import import import_graph
from fnftg.kg.graph_source import open_graph

__all__ = ["KnowledgeGraph", "Vocabulary", "import_graph", "open_graph"]
