"""Distillation: a small BERT learns the geometry of a larger encoder's vectors, on the texts of graphs.

The student's [CLS] vectors are trained to have the cosine similarities of the teacher's pooled vectors. Only texts are
used, of entities and relations, and random pairs of them in the form of query texts. No triple is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fnftg.arrays import BoolArray, Float32Array, Int64Array
from fnftg.console import Progress, progress
from fnftg.errors import FnftgError, shortened
from fnftg.json_files import write_json
from fnftg.kernels.determinism import deterministic
from fnftg.kg.graph import KnowledgeGraph
from fnftg.text.encoder import Encoder, uses_bfloat16
from fnftg.text.encoders import GLOVE, SHORT_NAMES, STATIC, TextConfig, is_made_of_texts, load_encoder, parsed_size
from fnftg.text.features import FeatureStore, encode_rows
from fnftg.text.hub import quiet
from fnftg.text.rows import GraphLines, content_key
from fnftg.text.scratch import random_bert
from fnftg.text.static_encoder import static_student
from fnftg.text.text_transformer import GraphTexts, TextEncoder
from fnftg.text.tokens import FlatTokens, TokenStore

HUB_PREFIX = "google/bert_uncased_"
PAIRS_PER_TEXT, HELD_OUT = 0.25, 0.02  # as shares of the distinct texts
BATCH, LEARNING_RATE, WARMUP, WEIGHT_DECAY = 256, 1e-3, 0.1, 0.01
TEMPERATURE = 0.05
BFLOAT16_WIDTH = 256  # students at least this wide train faster in bfloat16 where the hardware supports it
NEAREST, MAPPED = 10, 20_000  # nearest texts, and training texts for the linear map, of the held-out figures
FEWEST_TEXTS, ENOUGH = 20, 300_000  # distinct texts that are needed; texts of all epochs, by default
FEW_TEXTS, MOST_HELD_OUT = 2_000, 5_000  # a tenth of few texts is held out; of many, so many are compared
REPORT = "distillation.json"
STATIC_SAMPLE = 2_000  # held-out texts and pairs that a static encoder is compared on


@dataclass(frozen=True)
class DistillationConfig:
    """How a student is distilled.

    Args:
        size: tiny, mini, small, medium or base (of BERT), e.g. L-2_H-128_A-2, or static, a table of token vectors.
        epochs: passes over the texts and pairs (default: at least 3, and more if there are few texts).
        words: number of words of each text that are read, as in training.
        seed: of the pairs, the held-out texts, the student's layers and the order of the texts.
    """

    size: str = "tiny"
    epochs: int | None = None
    words: int = 24
    seed: int = 73

    def __post_init__(self) -> None:
        for field in ("epochs", "words"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise FnftgError(f"--{field} is {value}: it must be at least 1.")
        if not 0 <= self.seed < 1 << 63:
            raise FnftgError(f"--seed is {self.seed}: it must be at least 0 and less than 2^63.")


@dataclass(frozen=True)
class DistillationTexts:
    """The distinct texts of graphs, and random pairs [entity‖relation] of them, of which some are held out."""

    tokens: TokenStore  # of all graphs, one after the other
    rows: Int64Array  # (n,): the text, or the first text of a pair
    second_rows: Int64Array  # (n,): the second text of a pair, −1 for a single text
    held_out: BoolArray  # (n,): texts that are not trained on, and their pairs

    @classmethod
    def of(
        cls, graphs: Sequence[KnowledgeGraph], encoder: Encoder, words: int, seed: int, cache: Path | None = None
    ) -> DistillationTexts:
        """Tokenise the texts, and sample the pairs and the held-out texts."""
        stores = [TokenStore.of(graph, encoder, words, cache) for graph in graphs]
        tokens = joined(stores)
        rng = np.random.default_rng(seed)
        texts, _ = tokens.distinct(np.arange(len(tokens)))
        texts = np.sort(texts[tokens.ragged.lengths(texts) > 0])
        if len(texts) < FEWEST_TEXTS:
            raise FnftgError(f"The graphs have fewer than {FEWEST_TEXTS} distinct texts: give graphs with more texts.")
        starts = np.cumsum([0, *map(len, stores)])
        graph_of = np.searchsorted(starts, texts, side="right") - 1  # (n,)
        entities = np.array([store.entities for store in stores])
        relations = np.array([store.relations for store in stores])
        paired = rng.permutation(np.flatnonzero(texts - starts[graph_of] < entities[graph_of]))
        paired = np.sort(paired[: int(np.ceil(PAIRS_PER_TEXT * len(texts)))])
        of = graph_of[paired]
        labels = (rng.random(len(paired)) * 2 * relations[of]).astype(np.int64)  # also of inverse relations
        second = starts[of] + entities[of] + labels
        out = np.zeros(len(texts), np.bool_)
        share = max(HELD_OUT * len(texts), min(FEW_TEXTS, len(texts)) / 10)
        out[rng.permutation(len(texts))[: round(share)]] = True
        return cls(
            tokens,
            np.concatenate([texts, texts[paired]]),
            np.concatenate([np.full(len(texts), -1), second]),
            np.concatenate([out, out[paired]]),
        )

    def sample(self, size: int) -> DistillationTexts:
        """Return up to `size` of the held-out texts and pairs, and as many of the others, evenly spaced."""
        parts = [np.flatnonzero(self.held_out == out) for out in (False, True)]
        chosen = np.sort(np.concatenate([part[:: max(1, -(-len(part) // size))] for part in parts]))
        return replace(
            self, rows=self.rows[chosen], second_rows=self.second_rows[chosen], held_out=self.held_out[chosen]
        )

    def teacher_vectors(self, teacher: Encoder, cache: Path | None = None) -> Float32Array:
        """Return the teacher's pooled vectors of the texts and pairs, with unit length, (n, hidden).

        The vectors of all texts of the graphs are computed first, and kept in the cache.
        """
        store = FeatureStore.of(teacher, self.tokens, teacher.pooling, cache, precision="auto")
        single = self.second_rows < 0
        store.add_pairs(self.rows[~single], self.second_rows[~single], cache)
        return self._joined(store.take(self.rows[single]), store.take(self.rows[~single], self.second_rows[~single]))

    def own_teacher_vectors(self, teacher: Encoder) -> Float32Array:
        """Return `teacher_vectors` without encoding the other texts of the graphs, for a sample."""
        single = self.second_rows < 0
        with progress("Encoding texts", len(self.rows), "texts") as advance:
            texts, pairs = (
                encode_rows(teacher.model, self.tokens, self.rows[part], second, teacher.pooling, advance=advance)
                for part, second in ((single, None), (~single, self.second_rows[~single]))
            )
        return self._joined(texts, pairs)

    def _joined(self, texts: Float32Array, pairs: Float32Array) -> Float32Array:
        """Join the vectors of single texts and of pairs, and scale them to unit length."""
        vectors, single = np.empty((len(self.rows), texts.shape[1]), np.float32), self.second_rows < 0
        vectors[single], vectors[~single] = texts, pairs
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def joined(stores: Sequence[TokenStore]) -> TokenStore:
    """Return the tokens of several graphs, one after the other, with all texts as rows of entities."""
    if len(stores) == 1:
        return stores[0]
    flat = [store.ragged.flat(rows, store.ragged.lengths(rows)) for store in stores for rows in [np.arange(len(store))]]
    lengths = [store.ragged.lengths(np.arange(len(store))) for store in stores]
    offsets = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    first = stores[0]
    return TokenStore(
        FlatTokens(np.concatenate(flat), offsets),
        first.special,
        len(offsets) - 1,
        0,
        first.words,
        first.max_length,
        content_key("joined", *(store.key for store in stores)),
    )


def load_teacher(name: str) -> Encoder:
    """Load a pretrained BERT.

    Raises:
        FnftgError: if it is another kind of encoder.
    """
    teacher = None if is_made_of_texts(name) or name.partition(":")[0] == GLOVE else load_encoder(name)
    config: Any = None if teacher is None else teacher.model.config
    if teacher is None or getattr(config, "model_type", None) != "bert":
        raise FnftgError(
            f"The teacher {shortened(name)} is not a pretrained BERT: give minilm, a folder or a hub name."
        )
    return teacher


def untrained_student(teacher: Encoder, size: str, seed: int) -> Encoder:
    """Return a BERT of a size with the teacher's tokenizer, embeddings from the teacher's, and random layers.

    The principal components of the teacher's word embeddings map its word, position and token-type embeddings to the
    student's width, so sums of embeddings are mapped alike.
    """
    shape = parsed_size(SHORT_NAMES.get(size, size).removeprefix(HUB_PREFIX))
    if shape is None:
        raise FnftgError(
            f"{shortened(size)} is not the size of an encoder: give {STATIC}, {', '.join(SHORT_NAMES)}, or write "
            "L-2_H-128_A-2 for 2 layers of width 128 with 2 heads; the width must be a multiple of the heads."
        )
    source: Any = teacher.model
    model = random_bert(*shape, source.config.vocab_size, seed)
    words = source.embeddings.word_embeddings.weight.double()
    _, components = torch.linalg.eigh(words.T @ words)  # in rising order
    components = components.flip(1)[:, : shape[1]]
    components *= components.gather(0, components.abs().argmax(0, keepdim=True)).sign()  # signs are arbitrary otherwise
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        weight = getattr(model.embeddings, name).weight
        mapped = (getattr(source.embeddings, name).weight.double() @ components).float()
        weight.data[: len(mapped), : mapped.shape[1]] = mapped[: len(weight)]
    parts = model.eval(), teacher.tokenizer
    return Encoder(size, "cls", lambda: parts)


def distil(
    graphs: Sequence[KnowledgeGraph], teacher: Encoder, config: DistillationConfig, cache: Path | None = None
) -> tuple[Encoder, dict[str, Any]]:
    """Make a student of the teacher with the texts of graphs. Returns it with its held-out figures."""
    if config.size == STATIC:
        return distil_static(graphs, teacher, config, cache)
    student = untrained_student(teacher, config.size, config.seed)
    texts = DistillationTexts.of(graphs, teacher, config.words, config.seed, cache)
    targets = texts.teacher_vectors(teacher, cache)
    epochs = config.epochs or max(3, math.ceil(ENOUGH / len(texts.rows)))
    started = time.monotonic()
    with deterministic():
        train_student(student, texts, targets, epochs, config.seed)
    seconds = time.monotonic() - started
    pairs = texts.second_rows >= 0
    counts = {"texts": int((~pairs).sum()), "pairs": int(pairs.sum()), "epochs": epochs, "seconds": round(seconds, 1)}
    return student, {**counts, "held_out": held_out_figures(student, texts, targets)}


def distil_static(
    graphs: Sequence[KnowledgeGraph], teacher: Encoder, config: DistillationConfig, cache: Path | None = None
) -> tuple[Encoder, dict[str, Any]]:
    """Make a static encoder, which is not trained, and compare it with the teacher on a sample of the texts."""
    texts = DistillationTexts.of(graphs, teacher, config.words, config.seed, cache)
    started = time.monotonic()
    lines = chain.from_iterable(map(GraphLines, graphs))
    student = static_student(teacher, lines, cache=cache)
    counts = {"texts": int((texts.second_rows < 0).sum()), "seconds": round(time.monotonic() - started, 1)}
    sample = texts.sample(STATIC_SAMPLE)
    targets = sample.own_teacher_vectors(teacher)
    own = replace(sample, tokens=replace(sample.tokens, special=student.special))
    return student, {**counts, "held_out": held_out_figures(student, own, targets)}


def train_student(student: Encoder, texts: DistillationTexts, targets: Float32Array, epochs: int, seed: int) -> None:
    """Train a student with AdamW, a linear warm-up and a cosine decay of the learning rate, without dropout."""
    text_config = TextConfig(pooling="cls", training="finetune", dropout=0.0)
    encoder = TextEncoder(text_config, student).train()
    graph_texts = GraphTexts(texts.tokens, None, len(texts.tokens), 0)
    bfloat16 = student.hidden >= BFLOAT16_WIDTH and uses_bfloat16("auto", student.device)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    trained = np.flatnonzero(~texts.held_out)
    steps = epochs * math.ceil(len(trained) / BATCH)
    rng = np.random.default_rng(seed)
    step = 0
    with Progress("Distilling", epochs * len(trained), "texts") as shown:
        for epoch in range(1, epochs + 1):
            for batch in np.array_split(rng.permutation(trained), steps // epochs):
                rate = LEARNING_RATE * learning_rate_share(step, steps)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                pair = texts.second_rows[batch] >= 0
                batch = np.concatenate([batch[~pair], batch[pair]])
                with torch.autocast(student.device.type, torch.bfloat16, enabled=bfloat16):
                    vectors = student_vectors(encoder, graph_texts, texts.rows[batch], texts.second_rows[batch])
                loss = similarity_loss(vectors.float(), torch.from_numpy(targets[batch]))
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                step += 1
                shown.advance(len(batch), f"epoch {epoch}, loss {loss.item():.4f}")
    student.freeze()


def student_vectors(encoder: TextEncoder, texts: GraphTexts, rows: Int64Array, second_rows: Int64Array) -> torch.Tensor:
    """Return the student's vectors of single texts, which come first, and of pairs, (n, hidden)."""
    first, second = torch.from_numpy(rows), torch.from_numpy(second_rows)
    pair = second >= 0
    return torch.cat([encoder.features(texts, first[~pair]), encoder.features(texts, first[pair], second[pair])])


def similarity_loss(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the divergence of the student's from the teacher's distribution over the other texts of a batch.

    It needs no layer between the student's and the teacher's width, so the geometry is in the [CLS] vectors themselves,
    which a model is trained on. The softmax makes the nearest texts count most. After 80 batches of WN18RR_IND's texts
    with a learning rate of 0.001, a held-out text's nearest one by the teacher was among the 10 nearest by the student
    for 48 % of texts; with the squared error of the cosines for 17 %, and with the cosine of the teacher's vectors and
    the outputs of a linear layer for 11 %.
    """
    mask = torch.eye(len(targets), dtype=torch.bool)
    vectors = functional.normalize(vectors, dim=1)
    own = (vectors @ vectors.T / TEMPERATURE).masked_fill(mask, -1e4).log_softmax(1)
    wanted = (targets @ targets.T / TEMPERATURE).masked_fill(mask, -1e4).log_softmax(1)
    return functional.kl_div(own, wanted, reduction="batchmean", log_target=True)


def learning_rate_share(step: int, steps: int) -> float:
    """Return the share of the highest learning rate at a step: a linear warm-up, then a cosine decay to 0."""
    return min(1.0, (step + 1) / max(1.0, WARMUP * steps)) * (1 + math.cos(math.pi * step / steps)) / 2


def held_out_figures(student: Encoder, texts: DistillationTexts, targets: Float32Array) -> dict[str, dict[str, Any]]:
    """Compare the student's with the teacher's vectors of held-out texts and pairs.

    cosine is the mean cosine of the teacher's vectors and of the student's, which a linear map, fitted to training
    texts, takes to the teacher's width. nearest@10 is the share of texts whose nearest other held-out text by the
    teacher is among the 10 nearest by the student's vectors.
    """
    figures = {}
    pairs = texts.second_rows >= 0
    for name, chosen in {"texts": ~pairs, "pairs": pairs}.items():
        held_out = np.flatnonzero(chosen & texts.held_out)[:MOST_HELD_OUT]
        trained = np.flatnonzero(chosen & ~texts.held_out)
        trained = trained[:: max(1, len(trained) // MAPPED)]
        if len(held_out) < 2:
            continue
        own, own_trained = (
            torch.from_numpy(encode_rows(student.model, texts.tokens, texts.rows[part], second, student.pooling))
            for part in (held_out, trained)
            for second in [texts.second_rows[part] if name == "pairs" else None]
        )
        wanted = torch.from_numpy(targets[held_out])
        fitted = linear_map(own_trained, torch.from_numpy(targets[trained]))
        cosine = functional.cosine_similarity(with_constant(own) @ fitted, wanted).mean()
        near = nearest(wanted, 1)
        found = (nearest(own, min(NEAREST, len(held_out) - 1)) == near).any(1).float().mean()
        figures[name] = {
            "count": len(held_out),
            "cosine": round(float(cosine), 4),
            f"nearest@{NEAREST}": round(float(found), 4),
        }
    return figures


def linear_map(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the least-squares map from vectors with a constant to targets, (hidden + 1, width)."""
    inputs = with_constant(vectors).double()
    ridge = 1e-6 * len(inputs) * torch.eye(inputs.shape[1], dtype=torch.float64)
    found: torch.Tensor = torch.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ targets.double())
    return found.float()


def with_constant(vectors: torch.Tensor) -> torch.Tensor:
    return torch.cat([vectors, torch.ones(len(vectors), 1)], dim=1)


def nearest(vectors: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k nearest other vectors of each vector by cosine, (n, k)."""
    vectors = functional.normalize(vectors, dim=1)
    return (vectors @ vectors.T).fill_diagonal_(-2).topk(k, dim=1).indices


def save_student(student: Encoder, folder: Path, report: dict[str, Any]) -> None:
    """Write an encoder folder with the report on its distillation, and its pooling as in sentence-transformers."""
    model: Any = student.model
    with quiet():
        student.tokenizer.save_pretrained(folder)
        model.save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    cls = student.pooling == "cls"
    pooling = {"pooling_mode_cls_token": cls, "pooling_mode_mean_tokens": not cls}
    write_json(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": student.hidden, **pooling}, checksum=False
    )
    write_json(folder / REPORT, report, checksum=False)
