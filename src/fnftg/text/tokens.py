"""`TokenStore`: the tokens of all texts of a graph in one flat array on disk, and batches of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from fnftg.array_files import load_offsets, write_array
from fnftg.arrays import AnyArray, Int64Array, UInt64Array
from fnftg.console import progress
from fnftg.errors import DamagedError, FnftgError
from fnftg.json_files import read_json, write_json
from fnftg.kernels.ranges import ranges
from fnftg.kg.graph import KnowledgeGraph
from fnftg.text.cache import cached
from fnftg.text.encoder import Encoder, TokenBatch
from fnftg.text.rows import ViewRows, content_key, leading_words, text_blocks, texts_key
from fnftg.text.special_tokens import SpecialTokens

TOKENS, OFFSETS, ABOUT = "tokens.bin", "offsets.npy", "about.json"
HASHED = 100_000  # texts in memory at a time
FEWEST, ALIKE = 8, 0.75  # a batch has at least 1/8 of the budget, or sequences of at least 3/4 of its longest


class RaggedTokens(Protocol):
    """Token ids of texts by row."""

    def lengths(self, rows: Int64Array) -> Int64Array: ...
    def flat(self, rows: Int64Array, lengths: Int64Array) -> AnyArray: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class FlatTokens:
    """The tokens of all texts, concatenated."""

    tokens: AnyArray  # (total,)
    offsets: Int64Array  # (rows + 1,): text i has tokens[offsets[i]:offsets[i + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, rows: Int64Array) -> Int64Array:
        """Return the number of tokens of each text, (n,)."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def flat(self, rows: Int64Array, lengths: Int64Array) -> AnyArray:
        """Return the first `lengths` tokens of each text, concatenated, (sum of lengths,)."""
        tokens: AnyArray = self.tokens[ranges(self.offsets[rows], lengths)]
        return tokens


@dataclass(frozen=True)
class ViewTokens:
    """The tokens of a graph and of the texts that a view adds, by the view's rows. Nothing is copied."""

    base: RaggedTokens
    added: RaggedTokens
    view: ViewRows

    def __len__(self) -> int:
        return len(self.base) + len(self.added)

    def lengths(self, rows: Int64Array) -> Int64Array:
        new, rows = self.view.split(rows)
        lengths = np.empty(len(rows), np.int64)
        lengths[new], lengths[~new] = self.added.lengths(rows[new]), self.base.lengths(rows[~new])
        return lengths

    def flat(self, rows: Int64Array, lengths: Int64Array) -> AnyArray:
        new, rows = self.view.split(rows)
        of_new = np.repeat(new, lengths)
        flat = np.empty(len(of_new), np.int32)
        flat[of_new] = self.added.flat(rows[new], lengths[new])
        flat[~of_new] = self.base.flat(rows[~new], lengths[~new])
        return flat


@dataclass(frozen=True)
class TokenStore:
    """The tokens of all N + 2R texts of a graph. Special tokens are added by `batch`."""

    ragged: RaggedTokens
    special: SpecialTokens
    entities: int  # N
    relations: int  # R
    words: int
    max_length: int  # of the encoder, including special tokens
    key: str  # hash of tokenizer, words and texts

    @classmethod
    def of(cls, graph: KnowledgeGraph, encoder: Encoder, words: int, cache: Path | None = None) -> TokenStore:
        """Tokenise the first `words` words of each text, or load the tokens from the cache."""
        key = content_key("tokens", 1, encoder.tokenizer_key(), words, texts_key(graph))
        blocks = _tokenised(text_blocks(graph), encoder, words, len(graph.entities) + 2 * len(graph.relations))
        rows = len(graph.entities) + 2 * len(graph.relations)
        ragged = (
            _in_memory(blocks)
            if cache is None
            else cached(cache, f"tokens-{key}", _write(blocks), lambda folder: _on_disk(folder, rows))
        )
        return cls(
            ragged=ragged,
            special=encoder.special,
            entities=len(graph.entities),
            relations=len(graph.relations),
            words=words,
            max_length=encoder.max_length,
            key=key,
        )

    def extended(self, view: KnowledgeGraph, encoder: Encoder) -> TokenStore:
        """Return the tokens of a view of the graph. Only the texts that it adds are tokenised."""
        rows = ViewRows(
            self.entities,
            self.relations,
            len(view.entities) - self.entities,
            len(view.relations) - self.relations,
        )
        if rows.new_entities < 0 or rows.new_relations < 0:
            raise FnftgError("The graph has fewer entities or relations than the graph that it should extend.")
        blocks = text_blocks(view, self.entities, self.relations)
        added = _in_memory(_tokenised(blocks, encoder, self.words, None))
        key = content_key("view", self.key, added.offsets.tobytes(), added.tokens.tobytes())
        return TokenStore(
            ViewTokens(self.ragged, added, rows),
            self.special,
            len(view.entities),
            len(view.relations),
            self.words,
            self.max_length,
            key,
        )

    def of_texts(self, texts: Sequence[str], encoder: Encoder) -> TokenStore:
        """Return the tokens of other texts (n,), in rows 0 to n, cut to the same number of words."""
        ragged = _in_memory(_tokenised([list(texts)], encoder, self.words, None))
        return replace(self, ragged=ragged, entities=len(texts), relations=0, key="")

    def __len__(self) -> int:
        return self.entities + 2 * self.relations

    def lengths(
        self, rows: Int64Array, second_rows: Int64Array | None = None, max_length: int | None = None
    ) -> Int64Array:
        """Return the sequence lengths of texts or pairs, including special tokens, (n,)."""
        first, second = self._shares(rows, second_rows, max_length)
        return first + second + self._overhead(second_rows is not None)

    def batch(
        self, rows: Int64Array, second_rows: Int64Array | None = None, max_length: int | None = None
    ) -> TokenBatch:
        """Return [CLS] text [SEP], or [CLS] text [SEP] second text [SEP], for each row, padded to the longest."""
        special, pair = self.special, second_rows is not None
        first, second = self._shares(rows, second_rows, max_length)  # (n,) each
        after_first = len(special.start) + first
        middle = special.middle if pair else special.end
        after_second = after_first + len(middle) + second
        lengths = after_second + (len(special.pair_end) if pair else 0)
        n, width = len(rows), int(lengths.max()) if len(rows) else 0
        column, row = np.arange(width), np.arange(n)

        ids = np.full((n, width), special.padding, np.int64)
        ids[:, : len(special.start)] = special.start
        ids[(column >= len(special.start)) & (column < after_first[:, None])] = self.ragged.flat(rows, first)
        for place, token in enumerate(middle):
            ids[row, after_first + place] = token
        if second_rows is not None:
            in_second = (column >= (after_second - second)[:, None]) & (column < after_second[:, None])
            ids[in_second] = self.ragged.flat(second_rows, second)
            for place, token in enumerate(special.pair_end):
                ids[row, after_second + place] = token
        mask = column < lengths[:, None]
        types = None
        if special.second_type is not None:
            of_second = (column >= (after_second - second)[:, None]) & mask if pair else np.zeros_like(mask)
            types = torch.from_numpy(of_second.astype(np.int64) * special.second_type)
        return torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)), types

    def distinct(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return one row of each distinct text among `rows`, and the index of each row's text among them, (n,)."""
        unique, which = np.unique(rows, return_inverse=True)
        lengths = self.ragged.lengths(unique)
        order = np.argsort(lengths, kind="stable")
        bounds = np.searchsorted(lengths[order], np.unique(lengths))
        kept: list[Int64Array] = []
        place, count = np.empty(len(unique), np.int64), 0
        for group in np.split(order, bounds[1:]):  # texts of one length
            size = lengths[group[0]] if len(group) else 0
            flat = self.ragged.flat(unique[group], lengths[group]).reshape(len(group), size)
            if size == 0:
                first, inverse = np.arange(min(1, len(group))), np.zeros(len(group), np.int64)
            else:
                lines = np.ascontiguousarray(flat).view(np.dtype((np.void, flat.dtype.itemsize * size))).reshape(-1)
                _, first, inverse = np.unique(lines, return_index=True, return_inverse=True)
            place[group] = count + inverse
            kept.append(unique[group[first]])
            count += len(first)
        return np.concatenate(kept) if kept else unique, place[which]

    def hashes(self, rows: Int64Array) -> UInt64Array:
        """Return hashes of the tokens of texts, (n, 2)."""
        found = np.empty((len(rows), 2), np.uint64)
        for start in range(0, len(rows), HASHED):
            part = rows[start : start + HASHED]
            lengths = self.ragged.lengths(part)
            flat = self.ragged.flat(part, lengths)
            stops = (np.cumsum(lengths) * flat.itemsize).tolist()
            pieces = zip([0, *stops], stops, strict=False)
            data = flat.tobytes()
            digests = b"".join(hashlib.blake2b(data[begin:end], digest_size=16).digest() for begin, end in pieces)
            found[start : start + HASHED] = np.frombuffer(digests, np.uint64).reshape(-1, 2)
        return found

    def _overhead(self, pair: bool) -> int:
        special = self.special
        around = (special.middle, special.pair_end) if pair else (special.end,)
        return len(special.start) + sum(map(len, around))

    def _shares(
        self, rows: Int64Array, second_rows: Int64Array | None, max_length: int | None
    ) -> tuple[Int64Array, Int64Array]:
        """Return how many tokens of each text of a pair are kept. The longer text is truncated first."""
        room = min(max_length or self.max_length, self.max_length) - self._overhead(second_rows is not None)
        if room < 1:
            raise FnftgError(f"Sequences of {max_length} tokens are too short for a text and the special tokens.")
        first = self.ragged.lengths(rows)
        if second_rows is None:
            return np.minimum(first, room), np.zeros(len(rows), np.int64)
        second = self.ragged.lengths(second_rows)
        shorter = np.minimum(np.minimum(first, second), room // 2)
        longer = np.minimum(np.maximum(first, second), room - shorter)
        return np.where(first > second, longer, shorter), np.where(first > second, shorter, longer)


def fitting_budget(device: torch.device) -> int:
    """Return the number of tokens per encoder batch that fits a CPU's cache, or uses a GPU well."""
    return 1024 * torch.get_num_threads() if device.type == "cpu" else 16_384


def packs(lengths: Int64Array, budget: int) -> Iterator[Int64Array]:
    """Yield batches of sequences of similar lengths, longest first, with at most `budget` tokens including padding.

    A batch that is large enough ends early if much shorter sequences follow, to save padding.
    """
    order = np.argsort(-lengths, kind="stable")
    falling, start = -lengths[order], 0
    while start < len(order):
        longest = int(-falling[start])
        stop = start + max(1, budget // longest)
        worth = start + max(1, budget // FEWEST // longest)
        stop = min(stop, max(worth, int(np.searchsorted(falling, -ALIKE * longest, "right"))))
        yield order[start:stop]
        start = stop


def equal_packs(lengths: Int64Array, budget: int) -> Iterator[Int64Array]:
    """Yield batches of sequences of the same length, longest first, with at most `budget` tokens."""
    order = np.argsort(-lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1))
    for first, stop in pairwise(bounds.tolist()):
        size = max(1, budget // int(lengths[order[first]]))
        for start in range(first, stop, size):
            yield order[start : min(start + size, stop)]


# Making


def _tokenised(
    blocks: Iterable[list[str]], encoder: Encoder, words: int, total: int | None
) -> Iterator[tuple[AnyArray, Int64Array]]:
    """Yield the concatenated tokens of each block's texts, and the number of tokens of each text."""
    dtype = np.uint16 if len(encoder.tokenizer) <= 1 << 16 else np.int32
    with contextlib.nullcontext() if total is None else progress("Tokenising", total, "texts") as advance:
        for block in blocks:
            texts = [leading_words(text, words) for text in block]
            found: list[list[int]] = []
            if texts:
                options = {"padding": False, "truncation": False, "add_special_tokens": False}
                found = encoder.tokenizer(texts, return_attention_mask=False, **options)["input_ids"]
            lengths = np.fromiter(map(len, found), np.int64, len(found))
            flat = (token for text in found for token in text)
            yield np.fromiter(flat, dtype, int(lengths.sum())), lengths
            if advance is not None:
                advance(len(block))


def _in_memory(blocks: Iterable[tuple[AnyArray, Int64Array]]) -> FlatTokens:
    tokens, lengths = zip(*blocks, strict=True)
    return FlatTokens(np.concatenate(tokens), np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64))


def _write(blocks: Iterable[tuple[AnyArray, Int64Array]]) -> Any:
    def write(folder: Path) -> None:
        lengths, dtype = [np.zeros(1, np.int64)], "uint16"
        with open(folder / TOKENS, "wb") as file:
            for tokens, of_texts in blocks:
                file.write(tokens.tobytes())
                lengths.append(of_texts)
                dtype = tokens.dtype.name
        write_array(folder / OFFSETS, np.cumsum(np.concatenate(lengths), dtype=np.int64))
        write_json(folder / ABOUT, {"dtype": dtype})

    return write


def _on_disk(folder: Path, rows: int) -> FlatTokens:
    name = read_json(folder / ABOUT).get("dtype")
    if name not in ("uint16", "int32"):
        raise DamagedError(f"{folder / ABOUT} is damaged: {name!r} is not a token type.")
    dtype = np.dtype(name)
    count, rest = divmod((folder / TOKENS).stat().st_size, dtype.itemsize)
    offsets = load_offsets(folder / OFFSETS, rows, count if not rest else -1)
    return FlatTokens(np.memmap(folder / TOKENS, dtype, mode="r") if count else np.empty(0, dtype), offsets)
