"""`SpecialTokens`: the tokens that a tokenizer adds to texts and pairs of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that a tokenizer adds to texts, e.g. [CLS] a [SEP] and [CLS] a [SEP] b [SEP] for BERT."""

    start: tuple[int, ...]
    end: tuple[int, ...]  # of a single text
    middle: tuple[int, ...]  # of a pair
    pair_end: tuple[int, ...]
    padding: int
    second_type: int | None  # token type of a pair's second text; None if the encoder has no types

    @classmethod
    def of(cls, tokenizer: Any, takes_types: bool, name: str) -> SpecialTokens:
        """Read the special tokens from the tokenizer's output for one word and for a pair of words."""
        alone, pair = tokenizer("a"), tokenizer("a", "a")
        start, end = _around(alone.sequence_ids(0), 0)
        pair_start, after_first = _around(pair.sequence_ids(0), 0)
        before_second, pair_end = _around(pair.sequence_ids(0), 1)
        ids, pair_ids = alone["input_ids"], pair["input_ids"]
        if ids[:start] != pair_ids[:pair_start]:
            raise FnftgError(f"The encoder {name} marks pairs of texts in an unsupported way: use another encoder.")
        types = pair.get("token_type_ids") if takes_types else None
        return cls(
            start=tuple(ids[:start]),
            end=tuple(ids[end:]),
            middle=tuple(pair_ids[after_first:before_second]),
            pair_end=tuple(pair_ids[pair_end:]),
            padding=int(tokenizer.pad_token_id),
            second_type=None if not takes_types else int(types[before_second]) if types else 0,
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SpecialTokens:
        """Convert the fields back from JSON."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**fields)


def _around(sequences: list[int | None], wanted: int) -> tuple[int, int]:
    """Return the start and end of a text's tokens within a pair."""
    places = [place for place, sequence in enumerate(sequences) if sequence == wanted]
    return places[0], places[-1] + 1
