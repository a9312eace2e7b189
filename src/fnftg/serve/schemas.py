"""The schemas of requests (…Body, …Query) and responses (…Out), with all limits; OpenAPI is generated from them."""

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

MOST_BYTES = 2 << 20  # of a request's body
MOST_QUERIES, MOST_ANSWERS, LONGEST_NAME, LONGEST_SEARCH = 32, 1000, 1000, 200
MOST_FOUND, MOST_LISTED, MOST_NEAREST = 100, 200, 50
NAME, NEW = "<name>", "<new>"  # tags of the two forms of an entity or a relation; errors do not show them

Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=LONGEST_NAME)]
NewId = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=LONGEST_ID, pattern=r"^[^\n\r\t]*\S[^\n\r\t]*$")
]


class StrictBody(BaseModel):
    """Rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


def form_of(value: Any) -> str | None:
    if isinstance(value, str):
        return NAME
    return NEW if isinstance(value, (dict, BaseModel)) else None


class NewRelationBody(StrictBody):
    """A relation that the graph does not have, given by its text."""

    text: Text

    def to_relation(self) -> Relation:
        return Relation(self.text)


RelationBody = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[NewRelationBody, Tag(NEW)],
    Discriminator(
        form_of,
        custom_error_type="relation",
        custom_error_message="A relation is an id, a name, or an object with a text",
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
            raise ValueError(f"There are {len(self.edges) + len(self.incoming)} edges: {MOST_EDGES} are allowed")
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
        custom_error_message="An entity is an id, a name, or an object with a text",
    ),
]


def to_query_part(part: str | NewEntityBody | NewRelationBody | None) -> Any:
    """A part of a query in the form that `Predictor` takes."""
    if isinstance(part, NewEntityBody):
        return part.to_entity()
    return part.to_relation() if isinstance(part, NewRelationBody) else part


# Requests

NEW_ENTITY_EXAMPLE: dict[str, Any] = {
    "text": "labradoodle, a cross between a Labrador and a poodle",
    "edges": [["_hypernym", "dog.n.01"]],
}


class QueryBody(StrictBody):
    """A triple with one part left out: the answers are candidates for it."""

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


class PredictBody(StrictBody):
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


class ExplainBody(StrictBody):
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
    asked: Annotated[Literal["tail", "head"], Field(description="the end that is predicted")] = "tail"
    hide: Annotated[bool, Field(strict=True, description="hide the triple from the model, as in evaluation")] = True
    nearest: Annotated[int, Field(strict=True, ge=0, le=MOST_NEAREST, description="number of training triples")] = 5

    def triple(self) -> tuple[EntityName, RelationName, EntityName]:
        return to_query_part(self.head), to_query_part(self.relation), to_query_part(self.tail)


class EmbedBody(StrictBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"entities": ["poodle.n.01", NEW_ENTITY_EXAMPLE]}]})

    entities: Annotated[list[EntityBody], Field(min_length=1, max_length=MOST_QUERIES)]


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
    probability: float | None
    known: bool


class AnswersOut(BaseModel):
    answers: list[AnswerOut]


class PredictOut(BaseModel):
    results: list[AnswersOut]


class StepOut(BaseModel):
    relation: str
    direction: Literal["out", "in"]


class EffectOut(BaseModel):
    """What something adds to the score of a triple, and the score and rank without it."""

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
    entity: NamedOut
    own_attention: list[float | None] | None
    edges: list[EdgeOut]
    words: list[WordOut]


class EvidenceItemOut(BaseModel):
    """An entity, a relation, or both, with the value that `value_name` names."""

    entity: NamedOut | None
    relation: StepOut | None
    value: float | None


class EvidenceOut(EffectOut):
    """One source of evidence in its own words; clients show all sources in the same way."""

    source: str
    title: str
    sentence: str
    value_name: str | None
    items: list[EvidenceItemOut]


class NearestTripleOut(BaseModel):
    head: NamedOut
    tail: NamedOut
    distance: float | None


class ExplanationOut(BaseModel):
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
