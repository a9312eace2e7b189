"""`SpecialTokens`: what a tokenizer puts around texts and pairs of texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fnftg.errors import FnftgError


@dataclass(frozen=True)
class SpecialTokens:
    """What a tokenizer puts around texts: BERT's [CLS] a [SEP] and [CLS] a [SEP] b [SEP]."""

    start: tuple[int, ...]
    end: tuple[int, ...]  # of a text alone
    middle: tuple[int, ...]  # of a pair
    pair_end: tuple[int, ...]
    padding: int
    second_type: int | None  # token type of a pair's second text; None where the encoder has no types

    @classmethod
    def of(cls, tokenizer: Any, takes_types: bool, name: str) -> SpecialTokens:
        """Taken from the tokenizer's own output for a word and for two."""
        alone, pair = tokenizer("a"), tokenizer("a", "a")
        start, end = _around(alone.sequence_ids(0), 0)
        pair_start, after_first = _around(pair.sequence_ids(0), 0)
        before_second, pair_end = _around(pair.sequence_ids(0), 1)
        ids, pair_ids = alone["input_ids"], pair["input_ids"]
        if ids[:start] != pair_ids[:pair_start]:
            raise FnftgError(f"The encoder {name} marks pairs of texts in a way that is not known here.")
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
        """From what `dataclasses.asdict` makes of them, once it was written as JSON and read again."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**fields)


def _around(sequences: list[int | None], wanted: int) -> tuple[int, int]:
    """Where the tokens of a text begin and end among those of a pair."""
    places = [place for place, sequence in enumerate(sequences) if sequence == wanted]
    return places[0], places[-1] + 1
