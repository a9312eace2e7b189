"""Fast-and-Frugal Text-Graph Transformers: link prediction on knowledge graphs that carry text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fnftg.kg import KnowledgeGraph as KnowledgeGraph
    from fnftg.kg import import_graph as import_graph

__version__ = "0.1.0"
__all__ = ["KnowledgeGraph", "import_graph"]


def __getattr__(name: str) -> Any:
    """Loads the public names on first use, so that `fnftg --help` need not import numpy."""
    if name in __all__:
        from fnftg import kg

        return getattr(kg, name)
    raise AttributeError(f"module 'fnftg' has no attribute {name!r}")
