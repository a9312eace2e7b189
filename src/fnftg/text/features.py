"""`FeatureStore`: the encoder's pooled outputs for all texts of a graph, computed once and cached on disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import nn

from fnftg.array_files import load_array, write_array, write_rows
from fnftg.arrays import BoolArray, Float32Array, Int64Array, UInt64Array
from fnftg.console import log, progress
from fnftg.part_files import read_part, write_part
from fnftg.text.cache import cached
from fnftg.text.encoded_before import FEATURES, HASHES, PART, EncodedBefore, inverse, tables_like
from fnftg.text.encoder import Encoder, Pooling, Precision, pooled, uses_bfloat16
from fnftg.text.rows import ViewRows, content_key
from fnftg.text.tokens import TokenStore, ViewTokens, equal_packs, fitting_budget, packs
from fnftg.text.word_vectors import WordVectors

WORTH_SAYING = 10.0  # seconds of encoding after which the speed is reported
LEAST_TOKENS = 64  # of a batch, as products of very small matrices are summed in another order
INDEX = "index.npy"


def encode_rows(
    model: nn.Module,
    tokens: TokenStore,
    rows: Int64Array,
    second_rows: Int64Array | None,
    pooling: Pooling,
    token_budget: int | None = None,
    advance: Callable[[int], None] | None = None,
    bfloat16: bool = False,
    alone: bool = False,
) -> Float32Array:
    """Return the pooled outputs for texts, or pairs of texts, in the given order, (n, hidden), without gradients.

    With `alone`, batches have no padding and at least LEAST_TOKENS tokens, so that not even the last bit of an output
    depends on what else is encoded. Few texts take longer.
    """
    if isinstance(model, WordVectors) and pooling == "mean" and second_rows is None and not tokens.special.start:
        return _mean_vectors(model, tokens, rows, advance)
    parameter = next(model.parameters())
    training, device = model.training, parameter.device
    features = np.empty((len(rows), int(model.config.hidden_size)), np.float32)  # type: ignore[union-attr, arg-type]
    model.eval()
    try:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            lengths = tokens.lengths(rows, second_rows)
            for pack in (equal_packs if alone else packs)(lengths, token_budget or fitting_budget(device)):
                more = -(-LEAST_TOKENS // int(lengths[pack[0]])) - len(pack) if alone else 0
                filled = np.concatenate([pack, pack[:1].repeat(max(more, 0))])
                ids, mask, types = tokens.batch(rows[filled], None if second_rows is None else second_rows[filled])
                batch = ids.to(device), mask.to(device), None if types is None else types.to(device)
                features[pack] = pooled(model, batch, pooling)[: len(pack)].float().cpu().numpy()
                if advance is not None:
                    advance(len(pack))
    finally:
        model.train(training)
    return features


def _mean_vectors(
    model: WordVectors, tokens: TokenStore, rows: Int64Array, advance: Callable[[int], None] | None
) -> Float32Array:
    """Return what `encode_rows` returns for a table of word vectors, without padding."""
    features = np.empty((len(rows), model.config.hidden_size), np.float32)
    for start in range(0, len(rows), PART):
        part = rows[start : start + PART]
        lengths = tokens.lengths(part)
        ids = tokens.ragged.flat(part, lengths).astype(np.int64)
        with torch.inference_mode():
            features[start : start + PART] = model.mean_vectors(ids, np.concatenate([[0], np.cumsum(lengths)]))
        if advance is not None:
            advance(len(part))
    return features


class Table(Protocol):
    """A table of features by row."""

    def take(self, rows: Int64Array) -> Float32Array: ...


@dataclass(frozen=True)
class FlatTable:
    """Features of distinct texts, and the text of each row."""

    features: Float32Array  # (distinct, hidden)
    index: Int64Array  # (rows,)

    def take(self, rows: Int64Array) -> Float32Array:
        return self.features[self.index[rows]]


NO_FEATURES = FlatTable(np.empty((0, 0), np.float32), np.empty(0, np.int64))


@dataclass(frozen=True)
class ViewTable:
    """Features of a graph and of the texts that a view adds."""

    base: Table
    added: FlatTable
    view: ViewRows

    def take(self, rows: Int64Array) -> Float32Array:
        new, rows = self.view.split(rows)
        features = np.empty((len(rows), self.added.features.shape[1]), np.float32)
        features[new], features[~new] = self.added.take(rows[new]), self.base.take(rows[~new])
        return features


@dataclass(frozen=True)
class PairTable:
    """Features of pairs of texts by key: row · rows + second row."""

    keys: Int64Array  # (pairs,): ascending
    table: FlatTable

    def find(self, keys: Int64Array) -> tuple[BoolArray, Int64Array]:
        """Return whether each pair is in the table, and its place, (n,) each."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[places] == keys if len(self.keys) else np.zeros(len(keys), np.bool_), places


@dataclass
class FeatureStore:
    """Features of all N + 2R texts of a graph, and of the pairs that were added."""

    encoder: Encoder
    tokens: TokenStore
    pooling: Pooling
    table: Table
    token_budget: int | None = None
    pair_tables: list[PairTable] = field(default_factory=list)
    base: FeatureStore | None = None  # of a view: the store of the graph that it extends
    precision: Precision = "float32"

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        tokens: TokenStore,
        pooling: Pooling,
        cache: Path | None = None,
        token_budget: int | None = None,
        precision: Precision = "float32",
    ) -> FeatureStore:
        """Encode each distinct text once, on the encoder's device, or load the features from the cache."""
        store = cls(encoder, tokens, pooling, NO_FEATURES, token_budget, precision=precision)

        def distinct() -> tuple[Int64Array, None, Int64Array]:
            first, index = tokens.distinct(np.arange(len(tokens)))
            return first, None, index

        store.table = store._table("features", len(tokens), distinct, b"", cache)
        return store

    def add_pairs(self, rows: Int64Array, second_rows: Int64Array, cache: Path | None = None) -> None:
        """Encode each distinct pair of texts once, or load the features from the cache."""
        keys = np.unique(self._keys(rows, second_rows))

        def distinct() -> tuple[Int64Array, Int64Array, Int64Array]:
            first, of_first = self.tokens.distinct(keys // len(self.tokens))
            second, of_second = self.tokens.distinct(keys % len(self.tokens))
            codes, index = np.unique(of_first * len(second) + of_second, return_inverse=True)
            return first[codes // len(second)], second[codes % len(second)], index

        if len(keys):
            self.pair_tables.append(PairTable(keys, self._table("pairs", len(keys), distinct, keys.tobytes(), cache)))

    def take(self, rows: Int64Array, second_rows: Int64Array | None = None) -> Float32Array:
        """Return the features of texts or pairs, (n, hidden). Pairs that were not added are encoded."""
        if second_rows is None:
            return self.table.take(rows)
        keys, inverse = np.unique(self._keys(rows, second_rows), return_inverse=True)
        first, second = keys // len(self.tokens), keys % len(self.tokens)
        features = np.empty((len(keys), self.encoder.hidden), np.float32)
        missing = np.ones(len(keys), np.bool_)
        if self.base is not None and isinstance(self.tokens.ragged, ViewTokens):
            new_first, base_first = self.tokens.ragged.view.split(first)
            new_second, base_second = self.tokens.ragged.view.split(second)
            missing = new_first | new_second
            features[~missing] = self.base.take(base_first[~missing], base_second[~missing])
        for pairs in self.pair_tables:
            found, places = pairs.find(keys)
            found &= missing
            features[found] = pairs.table.take(places[found])
            missing &= ~found
        if missing.any():
            features[missing] = self._encode(first[missing], second[missing])
        return features[inverse]

    def extended(self, tokens: TokenStore) -> FeatureStore:
        """Return the features of a view with these tokens. Only the texts that it adds are encoded."""
        assert isinstance(tokens.ragged, ViewTokens)
        view = tokens.ragged.view
        first, index = tokens.distinct(view.new_rows())
        features = self._encode(first, None, tokens=tokens)
        table = ViewTable(self.table, FlatTable(features, index), view)
        return FeatureStore(self.encoder, tokens, self.pooling, table, self.token_budget, [], self, self.precision)

    def encode_texts(self, texts: Sequence[str]) -> Float32Array:
        """Return the features of any texts (n,), which need not be in the graph: (n, hidden)."""
        return self._encode(np.arange(len(texts)), None, tokens=self.tokens.of_texts(texts, self.encoder))

    @property
    def key(self) -> str:
        """A hash of what determines the features."""
        return content_key("features", 2, *self._parameters())

    def _parameters(self) -> tuple[str, ...]:
        precision = ("bfloat16",) if self._bfloat16 else ()
        return self.encoder.weights_key(), self.tokens.key, self.pooling, *precision

    def _keys(self, rows: Int64Array, second_rows: Int64Array) -> Int64Array:
        return rows * len(self.tokens) + second_rows

    def _encode(
        self,
        first: Int64Array,
        second: Int64Array | None,
        advance: Callable[[int], None] | None = None,
        tokens: TokenStore | None = None,
    ) -> Float32Array:
        model, tokens = self.encoder.model, tokens or self.tokens
        options = self.pooling, self.token_budget, advance, self._bfloat16
        return encode_rows(model, tokens, first, second, *options, alone=tokens is self.tokens)

    @property
    def _bfloat16(self) -> bool:
        return uses_bfloat16(self.precision, self.encoder.device)

    def _table(
        self,
        kind: str,
        rows: int,
        distinct: Callable[[], tuple[Int64Array, Int64Array | None, Int64Array]],
        what: bytes,
        cache: Path | None,
    ) -> FlatTable:
        """Features of the sequences that `distinct` names: first texts, second texts, which of them each row has."""
        if cache is None:
            first, second, index = self._by_length(*distinct())
            parts = self._parts(first, second, None)
            return FlatTable(np.concatenate([np.empty((0, self.encoder.hidden), np.float32), *parts]), index)
        weights, tokens, pooling, *precision = self._parameters()
        alike = f"{kind}-{content_key(kind, 2, weights, pooling, *precision)[:16]}"
        name = f"{alike}-{content_key(tokens, what)}"

        def make(folder: Path) -> None:
            first, second, index = self._by_length(*distinct())
            hashes = self._hashes(first, second)
            known = EncodedBefore.of(tables_like(cache, alike, name, self.encoder.hidden), hashes)
            unfinished = cache / f".{name}-{content_key(known.order.tobytes())}.parts"
            first, hashes = first[known.order], hashes[known.order]
            second = None if second is None else second[known.order]
            write_rows(
                folder / FEATURES, len(first), self.encoder.hidden, self._parts(first, second, unfinished, known)
            )
            write_array(folder / INDEX, known.place[index])
            write_array(folder / HASHES, hashes)

        sizes = self.encoder.hidden, rows
        table = cached(cache, name, make, lambda folder: load_table(folder, FEATURES, INDEX, *sizes))
        for unfinished in cache.glob(f".{name}-*.parts"):
            shutil.rmtree(unfinished, ignore_errors=True)
        return table

    def _hashes(self, first: Int64Array, second: Int64Array | None) -> UInt64Array:
        """Return hashes of the texts or pairs, (n, 2)."""
        hashes = self.tokens.hashes(first)
        if second is not None:
            hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + self.tokens.hashes(second)
        return hashes

    def _by_length(
        self, first: Int64Array, second: Int64Array | None, index: Int64Array
    ) -> tuple[Int64Array, Int64Array | None, Int64Array]:
        """Sort by length, the longest sequences first, so that the parts have sequences of similar lengths."""
        order = np.argsort(-self.tokens.lengths(first, second), kind="stable")
        place = inverse(order)
        return first[order], None if second is None else second[order], place[index]

    def _parts(
        self, first: Int64Array, second: Int64Array | None, folder: Path | None, known: EncodedBefore | None = None
    ) -> Iterator[Float32Array]:
        """Yield the features in parts of some thousand texts. Parts that are in the folder are not computed again."""
        started, encoded = time.monotonic(), 0
        if known is not None:
            yield from known.parts()
        begin = 0 if known is None else known.count
        with progress("Encoding texts", len(first) - begin, "texts") as advance:
            for start in range(begin, len(first), PART):
                stop = min(start + PART, len(first))
                name, shape = f"{start}-{stop}", (stop - start, self.encoder.hidden)
                features = None if folder is None else read_part(folder, name, np.float32, shape)
                if features is not None:
                    advance(stop - start)
                    yield features
                    continue
                seconds = None if second is None else second[start:stop]
                features = self._encode(first[start:stop], seconds, advance)
                encoded += stop - start
                if folder is not None and stop < len(first):
                    write_part(folder, name, features)
                yield features
        took = time.monotonic() - started
        if took > WORTH_SAYING:
            log(f"Encoded {encoded:,} texts in {took:,.0f} s ({encoded / took:,.0f} texts/s).")


def load_table(folder: Path, features: str, index: str, hidden: int, rows: int) -> FlatTable:
    """Load the features and the index of a table."""
    found = load_array(folder / features, np.float32, (None, hidden))
    return FlatTable(found, load_array(folder / index, np.int64, (rows,), bounds=(0, len(found))))
