"""Remove the tokens of stop words and punctuation."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np

from fnftg.arrays import AnyArray, BoolArray, Int64Array

WORDS = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can could did do does doing down during each few for from further had has have having he her here hers him his how i
if in into is it its just me more most my no nor not now of off on once only or other our ours out over own s same she
should so some such t than that the their theirs them then there these they this those through to too under until up
very was we were what when where which while who whom why will with would you your yours
"""
STOP_WORDS = frozenset(WORDS.split())


class ContentWords:
    """Selects the tokens that are not stop words or punctuation. A text with no other tokens keeps all of them.

    Stop words are assumed to be single tokens, as frequent words are in any vocabulary.
    """

    def __init__(self, tokenizer: Any):
        pieces: list[str] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        of_words, inside = _marks(pieces)
        words = [piece.removeprefix(of_words).removeprefix(inside).lower() for piece in pieces]
        self.dropped: BoolArray = np.array([word in STOP_WORDS or _is_punctuation(word) for word in words])
        if inside:
            self.continues: BoolArray = np.array([piece.startswith(inside) for piece in pieces])
        elif of_words:
            self.continues = np.array([not piece.startswith(of_words) for piece in pieces]) & ~self.dropped
        else:
            self.continues = np.zeros(len(pieces), np.bool_)

    def keep(self, tokens: AnyArray, lengths: Int64Array) -> BoolArray:
        """Return which tokens to keep, (total,), given the tokens (total,) of texts with these lengths (n,)."""
        ends = np.cumsum(lengths)
        goes_on = np.zeros(len(tokens), np.bool_)  # the next token continues the word
        goes_on[:-1] = self.continues[tokens[1:]]
        goes_on[ends[lengths > 0] - 1] = False
        alone = ~self.continues[tokens] & ~goes_on
        kept: BoolArray = ~(self.dropped[tokens] & alone)
        text = np.repeat(np.arange(len(lengths)), lengths)
        left = np.bincount(text[kept], minlength=len(lengths))
        kept |= (left == 0)[text]
        return kept


def _marks(pieces: list[str]) -> tuple[str, str]:
    """Return the prefix of pieces that begin a word, and the prefix of pieces that continue one."""
    for begins in ("Ġ", "▁"):  # of byte-level BPE and of SentencePiece
        if sum(piece.startswith(begins) for piece in pieces) > len(pieces) // 10:
            return begins, ""
    return "", "##" if any(piece.startswith("##") for piece in pieces) else ""


def _is_punctuation(word: str) -> bool:
    return bool(word) and all(unicodedata.category(character)[0] in "PS" for character in word)
