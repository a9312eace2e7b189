"""Schemas of requests (…Body, …Query) and responses (…Out) with all limits. OpenAPI is generated from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

from fnftg.predict.questions import (
    LONGEST_ID,
    MOST_CHARACTERS,
    MOST_EDGES,
    EntityName,
    NewEntity,
    Question,
    Relation,
    RelationName,
)

MOST_BYTES, MOST_VALUES = 2 << 20, 20_000  # bytes of a request's body, and values in its JSON
MOST_QUERIES, MOST_ANSWERS, LONGEST_NAME, LONGEST_SEARCH = 32, 1000, 1000, 200
MOST_FOUND, MOST_LISTED, MOST_NEAREST = 100, 200, 50
# Limits for all queries of a request together
MOST_NEW_TEXTS, MOST_NEW_EDGES, MOST_TOTAL_ANSWERS = 64, 2048, 10_000
MOST_NEW_PAIRS = 4  # queries that ask for a relation and contain something new; they are computed one by one
HEAVY_TEXTS, HEAVY_EDGES = 8, 256  # a request with more than this is heavy
NAME, NEW = "<name>", "<new>"  # union tags of the two forms of an entity or a relation; not shown in errors

Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=LONGEST_NAME)]
NewId = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=LONGEST_ID, pattern=r"^[^\n\r\t]*\S[^\n\r\t]*$")
]


class StrictBody(BaseModel):
    """A body that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


def form_of(value: Any) -> str | None:
    if isinstance(value, str):
        return NAME
    return NEW if isinstance(value, (dict, BaseModel)) else None


class NewRelationBody(StrictBody):
    """A relation that the graph does not have, described by its text."""

    text: Text

    def to_relation(self) -> Relation:
        return Relation(self.text)


RelationBody = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[NewRelationBody, Tag(NEW)],
    Discriminator(
        form_of,
        custom_error_type="relation",
        custom_error_message="A relation must be an id, a name, or an object with a text",
    ),
]


class NewEntityBody(StrictBody):
    """An entity that the graph does not have: its text and, optionally, its edges as [relation, entity] pairs."""

    text: Text
    edges: Annotated[list[tuple[RelationBody, EntityBody]], Field(max_length=MOST_EDGES)] = []
    incoming: Annotated[list[tuple[RelationBody, EntityBody]], Field(max_length=MOST_EDGES)] = []
    id: NewId | None = None

    @model_validator(mode="after")
    def few_edges(self) -> NewEntityBody:
        if len(self.edges) + len(self.incoming) > MOST_EDGES:
            raise ValueError(f"There are {len(self.edges) + len(self.incoming)} edges: send {MOST_EDGES} at most")
        return self

    def to_entity(self) -> NewEntity:
        edges, incoming = (
            [(to_query_part(relation), to_query_part(entity)) for relation, entity in pairs]
            for pairs in (self.edges, self.incoming)
        )
        return NewEntity(self.text, edges, incoming, self.id)


EntityBody = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[NewEntityBody, Tag(NEW)],
    Discriminator(
        form_of,
        custom_error_type="entity",
        custom_error_message="An entity must be an id, a name, or an object with a text",
    ),
]


def to_query_part(part: str | NewEntityBody | NewRelationBody | None) -> Any:
    """Convert a part of a query to the form that `Predictor` takes."""
    if isinstance(part, NewEntityBody):
        return part.to_entity()
    return part.to_relation() if isinstance(part, NewRelationBody) else part


def new_parts(*parts: str | NewEntityBody | NewRelationBody | None) -> tuple[int, int]:
    """Count the new texts and edges of a query. A new relation counts once, however often it occurs."""
    entities, edges, relations = 0, 0, set[str]()
    left = list(parts)
    while left:
        part = left.pop()
        if isinstance(part, NewRelationBody):
            relations.add(part.text)
        elif isinstance(part, NewEntityBody):
            entities, pairs = entities + 1, [*part.edges, *part.incoming]
            edges += len(pairs)
            left += [one for pair in pairs for one in pair]
    return entities + len(relations), edges


class WorkBody(StrictBody):
    """A body with limits on its total work."""

    def new_parts(self) -> list[tuple[int, int]]:
        """Return the numbers of new texts and edges of each query."""
        raise NotImplementedError

    def total_new_parts(self) -> tuple[int, int]:
        parts = self.new_parts()
        return sum(texts for texts, _ in parts), sum(edges for _, edges in parts)

    @property
    def is_heavy(self) -> bool:
        texts, edges = self.total_new_parts()
        return texts > HEAVY_TEXTS or edges > HEAVY_EDGES

    @model_validator(mode="after")
    def bounded_work(self) -> WorkBody:
        texts, edges = self.total_new_parts()
        for count, most, what in (
            (texts, MOST_NEW_TEXTS, "new entities and new relations"),
            (edges, MOST_NEW_EDGES, "edges of new entities"),
        ):
            if count > most:
                raise ValueError(f"The request has {count:,} {what}: send {most:,} at most")
        return self


# Requests

NEW_ENTITY_EXAMPLE: dict[str, Any] = {
    "text": "labradoodle, a cross between a Labrador and a poodle",
    "edges": [["_hypernym", "dog.n.01"]],
}


class QueryBody(StrictBody):
    """A triple with one part left out. That part is predicted."""

    head: EntityBody | None = None
    relation: RelationBody | None = None
    tail: EntityBody | None = None

    @model_validator(mode="after")
    def two_parts(self) -> QueryBody:
        if (self.head, self.relation, self.tail).count(None) != 1:
            raise ValueError("Give exactly two of head, relation and tail; the third is predicted")
        return self

    def question(self) -> Question:
        return Question(to_query_part(self.head), to_query_part(self.relation), to_query_part(self.tail))

    def new_parts(self) -> tuple[int, int]:
        return new_parts(self.head, self.relation, self.tail)


class PredictBody(WorkBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"queries": [{"head": "poodle.n.01", "relation": "hypernym"}], "k": 5},
                {"queries": [{"head": NEW_ENTITY_EXAMPLE, "relation": {"text": "is a pet of"}}], "known": True},
            ]
        }
    )

    queries: Annotated[list[QueryBody], Field(min_length=1, max_length=MOST_QUERIES)]
    k: Annotated[int, Field(strict=True, ge=1, le=MOST_ANSWERS, description="number of answers per query")] = 10
    known: Annotated[bool, Field(strict=True, description="include known triples in the answers and mark them")] = False
    min_missing: Annotated[
        float,
        Field(
            strict=True,
            ge=0,
            le=1,
            description="do not search for answers if the probability of a missing answer is lower",
        ),
    ] = 0.0

    def new_parts(self) -> list[tuple[int, int]]:
        return [query.new_parts() for query in self.queries]

    def new_pairs(self) -> int:
        """Count the queries that ask for a relation and contain something new."""
        return sum(query.relation is None and query.new_parts() != (0, 0) for query in self.queries)

    @property
    def is_heavy(self) -> bool:
        return super().is_heavy or self.new_pairs() > 1

    @model_validator(mode="after")
    def bounded_answers(self) -> PredictBody:
        count = len(self.queries) * self.k
        if count > MOST_TOTAL_ANSWERS:
            raise ValueError(f"queries × k is {count:,}: ask for {MOST_TOTAL_ANSWERS:,} answers at most")
        pairs = self.new_pairs()
        if pairs > MOST_NEW_PAIRS:
            message = "queries that ask for the relation of new entities: send {} at most"
            raise ValueError(f"The request has {pairs} {message.format(MOST_NEW_PAIRS)}")
        return self


class ExplainBody(WorkBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"head": "poodle.n.01", "relation": "hypernym", "tail": "dog.n.01"},
                {"head": NEW_ENTITY_EXAMPLE, "relation": "hypernym", "tail": "dog.n.01", "nearest": 0},
            ]
        }
    )

    head: EntityBody
    relation: RelationBody
    tail: EntityBody
    asked: Annotated[Literal["tail", "head"], Field(description="the end of the triple that is the answer")] = "tail"
    hide: Annotated[bool, Field(strict=True, description="hide the triple from the model, as in evaluation")] = True
    nearest: Annotated[
        int, Field(strict=True, ge=0, le=MOST_NEAREST, description="similar training triples to list")
    ] = 5

    def new_parts(self) -> list[tuple[int, int]]:
        return [new_parts(self.head, self.relation, self.tail)]

    def triple(self) -> tuple[EntityName, RelationName, EntityName]:
        return to_query_part(self.head), to_query_part(self.relation), to_query_part(self.tail)


class EmbedBody(WorkBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"entities": ["poodle.n.01", NEW_ENTITY_EXAMPLE]}]})

    entities: Annotated[list[EntityBody], Field(min_length=1, max_length=MOST_QUERIES)]

    def new_parts(self) -> list[tuple[int, int]]:
        return [new_parts(entity) for entity in self.entities]


class ReloadBody(StrictBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{}]})

    run: None = None


class SearchQuery(StrictBody):
    q: Annotated[str, Field(max_length=LONGEST_SEARCH, description="the start of an id or a name")] = ""
    limit: Annotated[int, Field(ge=1, le=MOST_FOUND)] = 10


class EntityQuery(StrictBody):
    limit: Annotated[int, Field(ge=0, le=MOST_LISTED, description="maximum number of edges")] = 30


# Responses


class NamedOut(BaseModel):
    id: str
    name: str
    text: str


class AnswerOut(NamedOut):
    rank: int
    score: float | None
    probability: Annotated[float | None, Field(description="that the triple is true; null for known triples")]
    conditional: Annotated[float | None, Field(description="that this is the answer, given that there is one")]
    known: bool


class AnswersOut(BaseModel):
    missing_answer: Annotated[float | None, Field(description="probability that the graph lacks an answer")]
    answers: list[AnswerOut]


class PredictOut(BaseModel):
    results: list[AnswersOut]


class StepOut(BaseModel):
    relation: str
    direction: Literal["out", "in"]


class EffectOut(BaseModel):
    """The effect of something on the score of a triple, and the score and rank without it."""

    effect: float | None
    score_without: float | None
    rank_without: float | None


class EdgeOut(EffectOut):
    neighbour: NamedOut
    edge: StepOut
    attention: list[float | None] | None


class WordOut(EffectOut):
    word: str


class SideOut(BaseModel):
    """The ego-graph and the text of the query entity or of the answer."""

    entity: NamedOut
    own_attention: list[float | None] | None
    edges: list[EdgeOut]
    words: list[WordOut]


class EvidenceItemOut(BaseModel):
    """An entity, a relation, or both, with a value that `value_name` describes."""

    entity: NamedOut | None
    relation: StepOut | None
    value: float | None


class EvidenceOut(EffectOut):
    """A source of evidence. All sources have the same fields."""

    source: str
    title: str
    sentence: str
    value_name: str | None
    items: list[EvidenceItemOut]


class QueryReasonOut(BaseModel):
    """Whether one of the two queries of a triple has a missing answer, and why."""

    asked: Literal["tail", "head"]
    probability: float
    sentences: list[str]


class NearestTripleOut(BaseModel):
    """A training triple with the same relation and similar head and tail."""

    head: NamedOut
    tail: NamedOut
    distance: float | None


class ExplanationOut(BaseModel):
    """The explanation of a triple."""

    head: NamedOut
    relation: NamedOut
    tail: NamedOut
    asked: Literal["tail", "head"]
    in_graph: bool
    hidden: bool
    score: float
    rank: float
    candidates: int
    probability: float | None
    conditional: float | None
    queries: list[QueryReasonOut]
    query: SideOut
    candidate: SideOut
    evidence: list[EvidenceOut]
    nearest: list[NearestTripleOut]


class VectorOut(BaseModel):
    id: str
    vector: list[float | None]


class VectorsOut(BaseModel):
    width: int
    vectors: list[VectorOut]


class EntityOut(NamedOut):
    degree: int


class EntitiesOut(BaseModel):
    entities: list[EntityOut]


class RelationLabelOut(BaseModel):
    id: str
    name: str


class NeighbourOut(BaseModel):
    relation: RelationLabelOut
    direction: Literal["out", "in"]
    neighbour: NamedOut


class EntityWithEdgesOut(EntityOut):
    edges: list[NeighbourOut]


class RelationOut(NamedOut):
    triples: int


class RelationsOut(BaseModel):
    relations: list[RelationOut]


class GraphOut(BaseModel):
    name: str | None
    entities: int
    relations: int
    triples: int


class ModelOut(BaseModel):
    name: str
    system: str
    encoder: str
    width: int
    parameters: int
    graph: GraphOut
    calibrated: bool
    metrics: dict[str, str | float] | None
    version: str
    checkpoint: str
    loaded_at: str


class ReloadOut(BaseModel):
    checkpoint: str


class StatusOut(BaseModel):
    status: Literal["ok", "ready", "loading", "stopping"]


class ErrorOut(BaseModel):
    code: str
    message: str
    field: str | None


class FailureOut(BaseModel):
    error: ErrorOut
