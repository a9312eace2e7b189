"""What can be asked, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from fnftg.errors import FnftgError, shortened

MOST_CHARACTERS, MOST_EDGES, MOST_NEW, MOST_ANSWERS = 20_000, 64, 64, 10_000
LONGEST_ID = 200


@dataclass(frozen=True, eq=False)
class NewEntity:
    """An entity that the graph does not have: its text and, if there are any, its edges.

    An edge is (relation, entity); the entity may be another new one, also one that links back. `incoming` edges lead
    from the entity here, and also are (relation, entity).
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
    """A relation that the graph does not have, by its text: "is the natural predator of"."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text, "text of the new relation"))


EntityName: TypeAlias = "str | int | NewEntity"  # an id, a name, a row, or one that is new
RelationName: TypeAlias = "str | int | Relation"


@dataclass(frozen=True)
class Question:
    """A triple of which one part is asked for."""

    head: EntityName | None = None
    relation: RelationName | None = None
    tail: EntityName | None = None

    def __post_init__(self) -> None:
        if (self.head, self.relation, self.tail).count(None) != 1:
            raise FnftgError("A question has two of head, relation and tail, and asks for the third.")


@dataclass(frozen=True)
class Answer:
    """An entity, or a relation, that would make the triple likely."""

    rank: int
    id: str
    name: str
    text: str
    score: float
    probability: float | None  # where the model was calibrated
    known: bool = False  # the triple is in the graph already

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ResolvedQuery:
    """A question with everything resolved to rows of its own view: of the graph and what the question adds to it."""

    head: int  # -1: asked for
    relation: int
    tail: int
    delta: GraphDelta


@dataclass(frozen=True)
class GraphDelta:
    """What a question adds to a graph of N entities and R relations: rows N, N + 1, … and R, R + 1, …"""

    entities: tuple[NewEntity, ...] = ()
    ids: tuple[str, ...] = ()  # of the new entities
    relations: tuple[Relation, ...] = ()
    triples: Sequence[tuple[int, int, int]] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.entities or self.relations or self.triples)


def one_line(text: object, what: str) -> str:
    """A text with every stretch of white space as one blank; refused where it is empty or beyond all reason."""
    if not isinstance(text, str) or not text.strip():
        raise FnftgError(f"The {what} is empty: describe it in a few words.")
    if len(text) > MOST_CHARACTERS:
        raise FnftgError(f"The {what} has {len(text):,} characters: {MOST_CHARACTERS:,} are allowed.")
    return " ".join(text.split())


def checked_k(k: object) -> int:
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MOST_ANSWERS:
        raise FnftgError(f"k is {k}: ask for 1 to {MOST_ANSWERS:,} answers.")
    return k


def _check_id(id_: object) -> None:
    if not isinstance(id_, str) or not id_.strip() or len(id_) > LONGEST_ID or any(mark in id_ for mark in "\n\r\t"):
        raise FnftgError(f"{shortened(str(id_))} cannot be an id: it must be one line of 1 to {LONGEST_ID} characters.")
