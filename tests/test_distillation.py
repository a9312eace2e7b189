"""A distilled encoder has its teacher's geometry, is repeatable, and is an ordinary encoder folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model2vec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from fnftg.arrays import Float32Array
from fnftg.cli import main
from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.kg.datasets import data_home, dataset
from fnftg.models.pretrained import from_pretrained
from fnftg.text.distillation import (
    DistillationTexts,
    joined,
    load_teacher,
    nearest,
    similarity_loss,
    untrained_student,
)
from fnftg.text.encoder import Encoder, pooled
from fnftg.text.encoders import load_encoder, save_encoder
from fnftg.text.features import encode_rows
from fnftg.text.rows import INVERSE, GraphLines
from fnftg.text.static_encoder import static_student
from fnftg.text.tokens import TokenStore

SIZE = "L-1_H-64_A-2"


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first edges of wordnet-animals with their texts: some hundred entities."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNFTG_HOME", str(tmp_path_factory.getbasetemp() / "data-home"))
        graph = dataset("wordnet-animals")
    ids, texts = graph.entities.ids, graph.entities.texts
    triples = [(ids[h], graph.relations.ids[r], ids[t]) for h, r, t in graph.triples("train")[:150].tolist()]
    chosen = {id_ for head, _, tail in triples for id_ in (head, tail)}
    of_entities = {ids[row]: texts[row] for row in range(len(ids)) if ids[row] in chosen}
    of_relations = {graph.relations.ids[row]: graph.relations.texts[row] for row in range(len(graph.relations))}
    splits = {"train": triples[:110], "val": triples[110:130], "test": triples[130:]}
    return KnowledgeGraph.from_triples(splits, of_entities, of_relations).save(tmp_path_factory.mktemp("g") / "s").path


@pytest.fixture(scope="module")
def distilled(animals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distilled") / "minilm-small"  # a name that must not decide the pooling
    arguments = ["--size", SIZE, "--epochs", "120", "--threads", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNFTG_HOME", str(tmp_path_factory.getbasetemp() / "data-home"))
        assert main(["distill", str(animals), "-o", str(folder), *arguments]) == 0
    return folder


def test_the_same_command_gives_the_same_weights(animals: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["distill", str(animals), "-o", str(tmp_path / name), "--size", SIZE, "--epochs", "1"]) == 0
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "b"))
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
    assert (
        main(["distill", str(animals), "-o", str(tmp_path / "c"), "--size", SIZE, "--epochs", "1", "--seed", "1"]) == 0
    )
    c = load_file(tmp_path / "c" / "model.safetensors")
    assert not all(torch.equal(a[key], c[key]) for key in a)


def test_texts_get_the_teachers_geometry(animals: Path, distilled: Path) -> None:
    teacher = load_teacher("minilm")
    texts = DistillationTexts.of([KnowledgeGraph.open(animals)], teacher, 24, 73)
    rows = texts.rows[texts.second_rows < 0]
    wanted = torch.nn.functional.normalize(
        torch.from_numpy(encode_rows(teacher.model, texts.tokens, rows, None, teacher.pooling))
    )
    losses, found = [], []
    for student in (untrained_student(teacher, SIZE, 73), load_encoder(str(distilled))):
        vectors = torch.from_numpy(encode_rows(student.model, texts.tokens, rows, None, "cls"))
        losses.append(float(similarity_loss(vectors, wanted)))
        found.append(float((nearest(vectors, 10) == nearest(wanted, 1)).any(1).float().mean()))
    assert losses[1] < 0.7 * losses[0], losses
    assert found[1] > found[0] + 0.1, found


def test_the_folder_says_what_it_is(animals: Path, distilled: Path) -> None:
    report = json.loads((distilled / "distillation.json").read_text())
    assert report["size"] == SIZE and report["teacher"] == "minilm" and report["graphs"] == [str(animals)]
    assert report["epochs"] == 120 and report["seed"] == 73 and report["words"] == 24
    assert 0 < report["held_out"]["texts"]["cosine"] <= 1 and 0 < report["held_out"]["texts"]["nearest@10"] <= 1


def test_the_folder_is_fine_tuned_as_in_the_paper(animals: Path, distilled: Path, tmp_path: Path) -> None:
    assert load_encoder(str(distilled)).pooling == "cls"
    options = ["--training.epochs", "1", "--training.batch_size", "64", "--trainer.threads", "1"]
    command = ["train", str(animals), "-o", str(tmp_path / "run"), "--config", "wn18rr-tiny", *options]
    assert main([*command, "--model.text.encoder", str(distilled)]) == 0
    model = from_pretrained(tmp_path / "run")
    assert model.tt.encoder.name == str(distilled) and model.tt.encoder.hidden == 64
    before, after = load_encoder(str(distilled)).model.state_dict(), model.tt.encoder.model.state_dict()
    assert before.keys() == after.keys()
    assert not torch.equal(*(state["encoder.layer.0.output.dense.weight"] for state in (before, after)))


def test_texts_are_distinct_and_pairs_join_an_entity_with_a_relation_of_its_graph(
    animals: Path, family: KnowledgeGraph
) -> None:
    teacher, graphs = load_teacher("minilm"), [KnowledgeGraph.open(animals), family]
    texts = DistillationTexts.of([*graphs, family], teacher, 24, 73)
    single = DistillationTexts.of(graphs, teacher, 24, 73)
    assert (texts.second_rows < 0).sum() == (single.second_rows < 0).sum()  # a second copy adds no text
    lines = [
        (position, is_entity, text)
        for position, graph in enumerate(graphs)
        for is_entity, part in (
            (True, list(graph.entities.texts)),
            (False, list(graph.relations.texts)),
            (False, [INVERSE + text for text in graph.relations.texts]),
        )
        for text in part
    ]
    pairs = single.second_rows >= 0
    assert pairs.sum() == np.ceil(0.25 * (~pairs).sum())
    for first, second in zip(single.rows[pairs], single.second_rows[pairs], strict=True):
        assert lines[first][1] and not lines[second][1] and lines[first][0] == lines[second][0]
    held_out = set(single.rows[single.held_out & ~pairs].tolist())
    assert [row in held_out for row in single.rows[pairs].tolist()] == single.held_out[pairs].tolist()


def test_joined_tokens_are_those_of_the_graphs(animals: Path, family: KnowledgeGraph) -> None:
    teacher = load_teacher("minilm")
    stores = [TokenStore.of(graph, teacher, 24) for graph in (KnowledgeGraph.open(animals), family)]
    both = joined(stores)
    assert len(both) == len(stores[0]) + len(stores[1])
    one, other = both.batch(np.array([len(stores[0]) + 2])), stores[1].batch(np.array([2]))
    assert torch.equal(one[0], other[0])


def test_embeddings_keep_the_teachers_similarities() -> None:
    """A student as wide as its teacher has the teacher's embeddings up to a rotation."""
    teacher = load_teacher("minilm")
    student = untrained_student(teacher, f"L-1_H-{teacher.hidden}_A-2", 73)
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        a, b = (getattr(encoder.model.embeddings, name).weight[:200] for encoder in (teacher, student))
        assert torch.allclose(a @ a.T, b @ b.T, atol=1e-4)


def test_loss_is_zero_for_the_teachers_similarities_and_ignores_rotation_and_length() -> None:
    generator = torch.Generator().manual_seed(0)
    wanted = torch.nn.functional.normalize(torch.randn(20, 8, generator=generator))
    rotation, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))
    assert float(similarity_loss(3 * wanted @ rotation, wanted)) == pytest.approx(0, abs=1e-5)
    assert float(similarity_loss(torch.randn(20, 8, generator=generator), wanted)) > 0.1


# Static encoders

SENTENCES = ["a red fox", "a red red dog", "a dog and a fox and a dog", "a", "the fox"]


def scratch_teacher() -> Encoder:
    torch.manual_seed(0)
    return load_encoder("scratch:L-1_H-16_A-2", SENTENCES)


def test_a_static_encoder_averages_the_weighted_principal_components_of_the_teachers_token_vectors() -> None:
    teacher = scratch_teacher()
    graph = KnowledgeGraph.from_triples({"train": [("e0", "r", "e1")]}, {f"e{i}": s for i, s in enumerate(SENTENCES)})
    student = static_student(teacher, GraphLines(graph), width=8)
    table = student.model.embeddings.weight.numpy()
    texts = [*SENTENCES, "r", "inverse of r"]  # of the entities, the relation and its inverse
    words = [teacher.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    size = len(teacher.tokenizer)
    with torch.no_grad():
        ids = [[*teacher.special.start, token, *teacher.special.end] for token in range(size)]
        states = [teacher.model(input_ids=torch.tensor([row])).last_hidden_state[0, 0] for row in ids]
    vectors = torch.stack(states).numpy().astype(np.float64)
    centred = vectors - vectors.mean(0)
    share = np.array([sum(token in text for text in words) for token in range(size)]) / len(words)
    weight = 0.01 / (0.01 + share)
    kept = np.linalg.svd(centred, full_matrices=False)[2][:8]  # the first eight principal components
    expected = centred @ kept.T
    expected *= weight[:, None] / np.sqrt(np.mean(expected**2))
    ordinary = [token for token in range(size) if token not in teacher.tokenizer.all_special_ids]
    assert len(ordinary) > 5
    assert np.allclose(np.abs(table[ordinary]), np.abs(expected[ordinary]), atol=1e-4)  # signs are arbitrary
    assert not table[teacher.tokenizer.all_special_ids].any()
    own = TokenStore.of(graph, student, 24)
    found = encode_rows(student.model, own, np.arange(7), None, "mean")
    known = [[token for token in text if token != teacher.tokenizer.unk_token_id] for text in words]
    assert known != words and np.allclose(found, [table[text].mean(0) for text in known], atol=1e-6)


def test_vectors_of_a_static_encoder_do_not_depend_on_the_other_texts_of_a_batch() -> None:
    teacher = scratch_teacher()
    triples = [(f"e{i}", "r", f"e{i + 1}") for i in range(4)]
    graph = KnowledgeGraph.from_triples({"train": triples}, {f"e{i}": s for i, s in enumerate(SENTENCES)})
    student = static_student(teacher, GraphLines(graph), width=8)
    tokens = TokenStore.of(graph, student, 24)
    rows = np.arange(len(tokens))
    together = encode_rows(student.model, tokens, rows, None, "mean")
    alone = np.concatenate([encode_rows(student.model, tokens, rows[i : i + 1], None, "mean") for i in rows])
    padded = pooled(student.model, tokens.batch(rows), "mean").numpy()
    assert np.array_equal(together, alone) and np.allclose(together, padded, atol=1e-6)


def test_a_run_with_a_static_encoder_is_saved_and_loaded(animals: Path, tmp_path: Path) -> None:
    folder, run = tmp_path / "encoder", tmp_path / "run"
    assert main(["distill", str(animals), "-o", str(folder), "--size", "static", "--threads", "1"]) == 0
    report = json.loads((folder / "distillation.json").read_text())
    assert report["size"] == "static" and 0.2 < report["held_out"]["texts"]["cosine"] <= 1
    encoder = load_encoder(str(folder))
    assert encoder.pooling == "mean" and encoder.hidden == 256 and not encoder.special.start
    options = ["--training.epochs", "1", "--training.batch_size", "64", "--trainer.threads", "1"]
    assert main(["train", str(animals), "-o", str(run), "--model.text.encoder", str(folder), *options]) == 0
    model = from_pretrained(run)
    assert model.tt.encoder.name == str(folder) and not model.tt.encoder.is_loaded
    assert model.tt.encoder.hidden == 256 and np.array_equal(
        *(e.model.embeddings.weight for e in (model.tt.encoder, encoder))
    )


def test_a_run_with_the_static_encoder_of_its_graph_keeps_the_encoder(animals: Path, tmp_path: Path) -> None:
    run, options = tmp_path / "run", ["--training.epochs", "1", "--training.batch_size", "64", "--trainer.threads", "1"]
    assert main(["train", str(animals), "-o", str(run), "--model.text.encoder", "static", *options]) == 0
    encoder = from_pretrained(run).tt.encoder
    assert encoder.name == "static" and (run / "checkpoint" / "encoder" / "model.safetensors").is_file()
    made = load_encoder("static", GraphLines(KnowledgeGraph.open(animals)), cache=data_home() / "texts")
    assert np.array_equal(encoder.model.embeddings.weight, made.model.embeddings.weight)
    with pytest.raises(FnftgError, match="made of the texts of a graph"):
        load_encoder("static")


def model2vec_model(**options: Any) -> Any:
    tokenizer: Any = scratch_teacher().tokenizer.backend_tokenizer
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    config = {"model_type": "model2vec", "architectures": ["StaticModel"]}  # as model2vec's distill writes
    return model2vec.StaticModel(vectors, tokenizer, config, **options)


def few_vectors() -> dict[str, Any]:
    """Options of a model whose tokens share vectors."""
    generator = np.random.default_rng(1)
    size = scratch_teacher().tokenizer.backend_tokenizer.get_vocab_size()
    weights = generator.random(size).astype(np.float32)
    return {"weights": weights, "token_mapping": generator.integers(size // 2, size=size)}


TEXTS = [*SENTENCES, "a ☃ red ☃", "☃", "", "A fox [SEP] the dog, " * 200]
MODEL2VEC: dict[str, Any] = {
    "plain": dict,
    "of length 1": lambda: {"normalize": True},
    "fewer vectors than tokens": few_vectors,
    "fewer vectors than tokens, of length 1": lambda: {"normalize": True, **few_vectors()},
}


@pytest.mark.parametrize("case", MODEL2VEC)
def test_models_of_model2vec_give_the_vectors_that_model2vec_gives(case: str, tmp_path: Path) -> None:
    theirs = model2vec_model(**MODEL2VEC[case]())
    theirs.save_pretrained(tmp_path / "theirs")
    expected = theirs.encode(TEXTS, max_length=None)
    ours = load_encoder(str(tmp_path / "theirs"))
    assert np.allclose(vectors_of(ours, TEXTS), expected, atol=1e-6)
    tokens = token_store(ours, TEXTS)
    assert np.allclose(pooled(ours.model, tokens.batch(np.arange(len(TEXTS))), "mean"), expected, atol=1e-6)
    save_encoder(ours, tmp_path / "ours")
    assert np.allclose(vectors_of(load_encoder(str(tmp_path / "ours")), TEXTS), expected, atol=1e-6)


def test_model2vec_reads_our_static_encoders(tmp_path: Path) -> None:
    ours = static_student(scratch_teacher(), SENTENCES, width=8)
    save_encoder(ours, tmp_path / "ours")
    theirs = model2vec.StaticModel.from_pretrained(tmp_path / "ours")
    assert np.allclose(theirs.encode(TEXTS, max_length=None), vectors_of(ours, TEXTS), atol=1e-6)


def test_models_of_model2vec_are_found_in_the_cache_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = tmp_path / "models--somebody--words" / "snapshots" / ("0" * 40)
    theirs = model2vec_model()
    theirs.save_pretrained(commit)
    (commit.parents[1] / "refs").mkdir()
    (commit.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    ours = load_encoder("somebody/words")
    assert (ours.name, ours.pooling) == ("somebody/words", "mean")
    assert np.allclose(vectors_of(ours, SENTENCES), theirs.encode(SENTENCES), atol=1e-6)


BAD_WORD_VECTORS: dict[str, tuple[str, bytes | None, str]] = {
    "no table": ("model.safetensors", save({"vectors": torch.zeros(2, 2)}), "no table of vectors named embeddings"),
    "other tokens": ("model.safetensors", save({"embeddings": torch.zeros(2, 2)}), "vectors of 2 tokens"),
    "cut off": ("model.safetensors", b"{}", "cannot be read: restore the file"),
    "no weights": ("model.safetensors", None, "has no weights in model.safetensors"),
    "bad tokenizer": ("tokenizer.json", b"{}", "tokenizer.json cannot be read: restore the file"),
}


@pytest.mark.parametrize("case", BAD_WORD_VECTORS)
def test_damaged_models_of_model2vec_get_one_sentence(case: str, tmp_path: Path) -> None:
    file, content, sentence = BAD_WORD_VECTORS[case]
    model2vec_model().save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / file
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(FnftgError) as caught:
        load_encoder(str(tmp_path / "theirs"))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def token_store(encoder: Encoder, texts: list[str]) -> TokenStore:
    graph = KnowledgeGraph.from_triples({"train": [("e0", "r", "e0")]}, {"e0": "a"})
    return TokenStore.of(graph, encoder, 10_000).of_texts(texts, encoder)


def vectors_of(encoder: Encoder, texts: list[str]) -> Float32Array:
    return encode_rows(encoder.model, token_store(encoder, texts), np.arange(len(texts)), None, "mean")


# name of the case: arguments, parts of the message
BAD_CASES: dict[str, tuple[list[str], list[str]]] = {
    "unknown size": (["--size", "huge"], ["huge", "tiny", "L-2_H-128_A-2"]),
    "width that the heads do not divide": (["--size", "L-2_H-100_A-3"], ["L-2_H-100_A-3", "multiple of the heads"]),
    "no epochs": (["--epochs", "0"], ["--epochs", "at least 1"]),
    "no words": (["--words", "0"], ["--words", "at least 1"]),
    "negative seed": (["--seed", "-1"], ["--seed", "at least 0"]),
    "no threads": (["--threads", "0"], ["--threads", "at least 1"]),
    "words as teacher": (["--teacher", "glove"], ["glove", "not a pretrained BERT"]),
    "untrained teacher": (["--teacher", "scratch:L-2_H-32_A-2"], ["scratch:", "not a pretrained BERT"]),
    "no teacher": (["--teacher", "./nowhere"], ["nowhere", "no encoder folder"]),
}


@pytest.mark.parametrize("case", BAD_CASES)
def test_bad_options_get_one_sentence_and_no_folder(
    case: str, animals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, parts = BAD_CASES[case]
    assert main(["distill", str(animals), "-o", str(tmp_path / "new"), *arguments]) == 1
    assert_one_sentence(capsys, parts)
    assert not list(tmp_path.iterdir())


def test_existing_folder_is_kept(animals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.txt").write_text("mine")
    assert main(["distill", str(animals), "-o", str(tmp_path / "new")]) == 1
    assert_one_sentence(capsys, ["already exists", "--force"])
    assert main(["distill", str(animals), "-o", str(tmp_path / "new"), "--force"]) == 1
    assert_one_sentence(capsys, ["not a folder that fnftg wrote"])
    assert (tmp_path / "new" / "mine.txt").read_text() == "mine"


def test_graph_without_texts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nameless = KnowledgeGraph.from_triples({"train": [("a", "r", "b")]}, {"a": "same", "b": "same"}, {"r": ""})
    nameless.save(tmp_path / "graph")
    assert main(["distill", str(tmp_path / "graph"), "-o", str(tmp_path / "new")]) == 1
    assert_one_sentence(capsys, ["fewer than", "distinct texts"])


def assert_one_sentence(capsys: pytest.CaptureFixture[str], parts: list[str]) -> None:
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("fnftg: ") and captured.err.count("\n") == 1, captured.err
    assert all(part in captured.err for part in parts), captured.err
