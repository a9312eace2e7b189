"""Fast-and-Frugal Text-Graph Transformers: link prediction on knowledge graphs that carry text."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fnftg.version import __version__ as __version__

if TYPE_CHECKING:
    from fnftg.kg import KnowledgeGraph as KnowledgeGraph
    from fnftg.kg import import_graph as import_graph
    from fnftg.models.pretrained import from_pretrained as from_pretrained
    from fnftg.models.pretrained import save_pretrained as save_pretrained
    from fnftg.predict.predictor import load as load
    from fnftg.predict.questions import NewEntity as NewEntity
    from fnftg.predict.questions import Question as Question
    from fnftg.predict.questions import Relation as Relation
    from fnftg.ranking.results import evaluate as evaluate
    from fnftg.training.api import train as train
    from fnftg.training.run_config import RunConfig as RunConfig

PUBLIC = {  # loaded on first use, so that `fnftg --help` need not import numpy
    "KnowledgeGraph": "fnftg.kg",
    "import_graph": "fnftg.kg",
    "evaluate": "fnftg.ranking.results",
    "RunConfig": "fnftg.training.run_config",
    "train": "fnftg.training.api",
    "from_pretrained": "fnftg.models.pretrained",
    "save_pretrained": "fnftg.models.pretrained",
    "load": "fnftg.predict.predictor",
    "NewEntity": "fnftg.predict.questions",
    "Question": "fnftg.predict.questions",
    "Relation": "fnftg.predict.questions",
}
__all__ = list(PUBLIC)


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(importlib.import_module(PUBLIC[name]), name)
    raise AttributeError(f"module 'fnftg' has no attribute {name!r}")
