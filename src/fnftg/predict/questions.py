"""Questions and answers: the input and output types of a `Predictor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from fnftg.errors import FnftgError, shortened
from fnftg.kg.strings import is_unicode

MOST_CHARACTERS, MOST_EDGES, MOST_NEW, MOST_ANSWERS = 20_000, 64, 64, 10_000
LONGEST_ID = 200


@dataclass(frozen=True, eq=False)
class NewEntity:
    """An entity that the graph does not have, described by its text and optional edges.

    Args:
        text: the description.
        edges: outgoing edges, as (relation, entity) pairs. The entity may be new, too.
        incoming: incoming edges, also as (relation, entity) pairs.
        id: the id in answers; `new:1`, `new:2`, … if not given.
    """

    text: str
    edges: Sequence[tuple[RelationName, EntityName]] = ()
    incoming: Sequence[tuple[RelationName, EntityName]] = ()
    id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text, "text of the new entity"))
        if self.id is not None:
            _check_id(self.id)


@dataclass(frozen=True)
class Relation:
    """A relation that the graph does not have, described by its text, such as "is the natural predator of"."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text, "text of the new relation"))


EntityName: TypeAlias = "str | int | NewEntity"  # an id, a name, a row, or a new entity
RelationName: TypeAlias = "str | int | Relation"


@dataclass(frozen=True)
class Question:
    """A triple with one part missing. The missing part is predicted."""

    head: EntityName | None = None
    relation: RelationName | None = None
    tail: EntityName | None = None

    def __post_init__(self) -> None:
        if (self.head, self.relation, self.tail).count(None) != 1:
            raise FnftgError("A question must have two of head, relation and tail: leave out the one to predict.")


@dataclass(frozen=True)
class Answer:
    """A predicted entity or relation."""

    rank: int
    id: str
    name: str
    text: str
    score: float
    probability: float | None  # that the triple is true; None for known triples, and if it was not fitted
    conditional: float | None  # that this is the answer, given that the query has one; None if not calibrated
    known: bool = False  # the triple is already in the graph

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as a dict, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ResolvedQuery:
    """A question with all names resolved to rows of the graph and of what the question adds to it."""

    head: int  # -1 if this part is to be predicted
    relation: int
    tail: int
    delta: GraphDelta


@dataclass(frozen=True)
class GraphDelta:
    """Additions to a graph of N entities and R relations; they have rows N, N + 1, … and R, R + 1, …"""

    entities: tuple[NewEntity, ...] = ()
    ids: tuple[str, ...] = ()  # ids of the new entities
    relations: tuple[Relation, ...] = ()
    triples: Sequence[tuple[int, int, int]] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.entities or self.relations or self.triples)


def one_line(text: object, what: str) -> str:
    """Return the text with white space collapsed to single blanks; raise `FnftgError` if it is empty or too long."""
    if not isinstance(text, str) or not text.strip():
        raise FnftgError(f"The {what} is empty: describe it in a few words.")
    if len(text) > MOST_CHARACTERS:
        raise FnftgError(f"The {what} has {len(text):,} characters: give {MOST_CHARACTERS:,} at most.")
    if not is_unicode(text):
        raise FnftgError(f"The {what} is not Unicode text: give it in UTF-8.")
    return " ".join(text.split())


def checked_k(k: object) -> int:
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MOST_ANSWERS:
        raise FnftgError(f"k is {k}: ask for 1 to {MOST_ANSWERS:,} answers.")
    return k


def _check_id(id_: object) -> None:
    text = id_ if isinstance(id_, str) and is_unicode(id_) else ""
    if not text.strip() or len(text) > LONGEST_ID or any(mark in text for mark in "\n\r\t"):
        raise FnftgError(f"{shortened(str(id_))} cannot be an id: it must be one line of 1 to {LONGEST_ID} characters.")
