"""Commands start fast: a question about a known entity loads no text encoder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fnftg
from fnftg.errors import FnftgError
from fnftg.kg.graph import KnowledgeGraph
from fnftg.models.fnf import FnF, FnFConfig
from fnftg.models.pretrained import from_pretrained, save_pretrained
from fnftg.predict.questions import NewEntity
from fnftg.text.encoders import TextConfig, load_encoder
from fnftg.text.rows import GraphLines

HEAVY = ("transformers", "tokenizers", "lightning", "sklearn", "matplotlib", "huggingface_hub", "faiss")
PREDICT = """
import json, sys
from fnftg.cli import main
code = main(["predict", sys.argv[1], "--head", "abe", "--relation", "parent_of", "--json"])
heavy = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps({"code": code, "heavy": heavy}), file=sys.stderr)
"""


@pytest.fixture
def run_folder(family: KnowledgeGraph, tmp_path: Path) -> Path:
    """A run of a frozen encoder, as training leaves it; its answers and texts are in the caches."""
    family.save(tmp_path / "graph")
    encoder = load_encoder("scratch:L-1_H-16_A-2", GraphLines(family))
    model = FnF(FnFConfig(text=TextConfig(encoder="scratch:L-1_H-16_A-2", training="frozen", query="vector")), encoder)
    save_pretrained(model, tmp_path / "run" / "checkpoint")
    (tmp_path / "run" / "config.json").write_text(json.dumps({"graph": str(tmp_path / "graph"), "config": {}}))
    fnftg.load(tmp_path / "run")
    return tmp_path / "run"


def test_a_known_entity_is_predicted_for_without_an_encoder(run_folder: Path) -> None:
    graph = KnowledgeGraph.open(json.loads((run_folder / "config.json").read_text())["graph"])
    script = PREDICT.replace("abe", graph.entities.ids[0]).replace("parent_of", graph.relations.ids[0])
    command = [sys.executable, "-c", script, str(run_folder), json.dumps(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == {"code": 0, "heavy": []}
    assert json.loads(done.stdout)


def test_an_encoder_is_loaded_by_the_first_new_text_and_not_before(run_folder: Path) -> None:
    predictor = fnftg.load(run_folder)
    encoder = predictor.model.tt.encoder
    predictor.tails(predictor.graph.entities.ids[0], predictor.graph.relations.ids[0])
    assert not encoder.is_loaded
    predictor.tails(NewEntity("a new text"), predictor.graph.relations.ids[0])
    assert encoder.is_loaded


def test_what_a_saved_encoder_is_said_to_be_is_what_it_is(run_folder: Path) -> None:
    encoder = from_pretrained(run_folder).tt.encoder
    before = encoder.facts()
    assert not encoder.is_loaded
    loaded = load_encoder(str(run_folder / "checkpoint" / "encoder"))
    assert before == loaded.facts()
    assert np.array_equal(encoder.tokenizer("a b")["input_ids"], loaded.tokenizer("a b")["input_ids"])


def test_a_record_of_an_encoder_that_cannot_be_read_is_one_sentence(run_folder: Path) -> None:
    (run_folder / "checkpoint" / "encoder" / "encoder.json").write_text("{}")
    with pytest.raises(FnftgError, match="damaged"):
        from_pretrained(run_folder)
    (run_folder / "checkpoint" / "checksums.json").unlink()  # as a checkpoint of 0.2
    with pytest.raises(FnftgError, match="does not describe an encoder"):
        from_pretrained(run_folder)
