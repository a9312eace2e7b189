"""Makes checkpoint-version-2, with the last code that wrote this version, commit 03e69ea^:

git worktree add --detach OLD 03e69ea^
PYTHONPATH=OLD/src python tests/legacy/make_version_2.py
"""

# mypy: ignore-errors
from __future__ import annotations

from pathlib import Path

import torch

from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.pretrained import save_pretrained
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    graph = KnowledgeGraph.open(FOLDER / "store-version-1")
    encoder = load_encoder("scratch:L-1_H-16_A-2", GraphLines(graph))
    torch.manual_seed(0)
    config = FnFConfig(text=TextConfig(encoder=encoder.name, width=8, training="frozen", query="vector"))
    save_pretrained(FnF(config, encoder, len(graph.relations)).eval(), FOLDER / "checkpoint-version-2")
