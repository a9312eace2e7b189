"""What requests and responses look like, with every bound: pydantic checks bodies by this, OpenAPI is made of it."""

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
NAME, NEW = "<name>", "<new>"  # the two forms of an entity or a relation; errors do not mention them

Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MOST_CHARACTERS, pattern=r"\S")]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=LONGEST_NAME)]
NewId = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=LONGEST_ID, pattern=r"^[^\n\r\t]*\S[^\n\r\t]*$")
]


class Strict(BaseModel):
    """Refuses what it does not know."""

    model_config = ConfigDict(extra="forbid")


def form_of(value: Any) -> str | None:
    if isinstance(value, str):
        return NAME
    return NEW if isinstance(value, (dict, BaseModel)) else None


class NewRelationBody(Strict):
    """A relation that the graph does not have, in words."""

    text: Text

    def meant(self) -> Relation:
        return Relation(self.text)


RelationBody = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[NewRelationBody, Tag(NEW)],
    Discriminator(
        form_of,
        custom_error_type="relation",
        custom_error_message="A relation is an id, a name, or an object with a text",
    ),
]


class NewEntityBody(Strict):
    """An entity that the graph does not have: a text and, if there are any, edges as pairs of relation and entity."""

    text: Text
    edges: Annotated[list[tuple[RelationBody, EntityBody]], Field(max_length=MOST_EDGES)] = []
    incoming: Annotated[list[tuple[RelationBody, EntityBody]], Field(max_length=MOST_EDGES)] = []
    id: NewId | None = None

    @model_validator(mode="after")
    def few_edges(self) -> NewEntityBody:
        if len(self.edges) + len(self.incoming) > MOST_EDGES:
            raise ValueError(f"There are {len(self.edges) + len(self.incoming)} edges: {MOST_EDGES} are allowed")
        return self

    def meant(self) -> NewEntity:
        edges, incoming = (
            [(meant(relation), meant(entity)) for relation, entity in pairs] for pairs in (self.edges, self.incoming)
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


def meant(part: str | NewEntityBody | NewRelationBody | None) -> Any:
    """A part of a question as `Predictor` takes it."""
    return part if part is None or isinstance(part, str) else part.meant()


# Requests

NEW_ENTITY_EXAMPLE: dict[str, Any] = {
    "text": "labradoodle, a cross between a Labrador and a poodle",
    "edges": [["_hypernym", "dog.n.01"]],
}


class QueryBody(Strict):
    """A triple of which one part, left out, is asked for."""

    head: EntityBody | None = None
    relation: RelationBody | None = None
    tail: EntityBody | None = None

    @model_validator(mode="after")
    def two_parts(self) -> QueryBody:
        if (self.head, self.relation, self.tail).count(None) != 1:
            raise ValueError("A query has two of head, relation and tail, and asks for the third")
        return self

    def question(self) -> Question:
        return Question(meant(self.head), meant(self.relation), meant(self.tail))


class PredictBody(Strict):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"queries": [{"head": "poodle.n.01", "relation": "hypernym"}], "k": 5},
                {"queries": [{"head": NEW_ENTITY_EXAMPLE, "relation": {"text": "is a pet of"}}], "known": True},
            ]
        }
    )

    queries: Annotated[list[QueryBody], Field(min_length=1, max_length=MOST_QUERIES)]
    k: Annotated[int, Field(strict=True, ge=1, le=MOST_ANSWERS, description="how many answers to each query")] = 10
    known: Annotated[bool, Field(strict=True, description="keep known links among the answers, and mark them")] = False


class ExplainBody(Strict):
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
    asked: Annotated[Literal["tail", "head"], Field(description="which of the two was to be found")] = "tail"
    hide: Annotated[bool, Field(strict=True, description="hide the triple itself, as in evaluation")] = True
    nearest: Annotated[int, Field(strict=True, ge=0, le=MOST_NEAREST, description="training triples to show")] = 5

    def triple(self) -> tuple[EntityName, RelationName, EntityName]:
        return meant(self.head), meant(self.relation), meant(self.tail)


class EmbedBody(Strict):
    model_config = ConfigDict(json_schema_extra={"examples": [{"entities": ["poodle.n.01", NEW_ENTITY_EXAMPLE]}]})

    entities: Annotated[list[EntityBody], Field(min_length=1, max_length=MOST_QUERIES)]


class ReloadBody(Strict):
    model_config = ConfigDict(json_schema_extra={"examples": [{}]})

    run: None = None


class SearchQuery(Strict):
    q: Annotated[str, Field(max_length=LONGEST_SEARCH, description="the beginning of an id or a name")] = ""
    limit: Annotated[int, Field(ge=1, le=MOST_FOUND)] = 10


class EntityQuery(Strict):
    limit: Annotated[int, Field(ge=0, le=MOST_LISTED, description="edges at most")] = 30


# Responses


class Named(BaseModel):
    id: str
    name: str
    text: str


class AnswerOut(Named):
    rank: int
    score: float | None
    probability: float | None
    known: bool


class Answers(BaseModel):
    answers: list[AnswerOut]


class Predicted(BaseModel):
    results: list[Answers]


class StepOut(BaseModel):
    relation: str
    direction: Literal["out", "in"]


class Reason(BaseModel):
    effect: float | None
    score_without: float | None
    rank_without: float | None


class EdgeOut(Reason):
    neighbour: Named
    steps: list[StepOut]
    attention: list[float | None] | None


class WordOut(Reason):
    word: str


class SideOut(BaseModel):
    entity: Named
    own_attention: list[float | None] | None
    edges: list[EdgeOut]
    words: list[WordOut]


class VoterOut(BaseModel):
    entity: Named
    similarity: float


class VotesOut(Reason):
    voters: list[VoterOut]


class ParallelsOut(Reason):
    edges: list[StepOut]


class MentionsOut(Reason):
    names: bool
    named: bool


class PrecedentsOut(Reason):
    alike: list[VoterOut]
    others: int


class NearOut(BaseModel):
    head: Named
    tail: Named
    distance: float | None


class Explained(BaseModel):
    head: Named
    relation: Named
    tail: Named
    asked: Literal["tail", "head"]
    in_graph: bool
    hidden: bool
    score: float
    rank: float
    candidates: int
    probability: float | None
    query: SideOut
    candidate: SideOut
    votes: VotesOut | None
    parallels: ParallelsOut | None
    mentions: MentionsOut | None
    precedents: PrecedentsOut | None
    nearest: list[NearOut]


class VectorOut(BaseModel):
    id: str
    vector: list[float | None]


class Embedded(BaseModel):
    width: int
    vectors: list[VectorOut]


class EntityOut(Named):
    degree: int


class Entities(BaseModel):
    entities: list[EntityOut]


class RelationLabel(BaseModel):
    id: str
    name: str


class NeighbourOut(BaseModel):
    relation: RelationLabel
    direction: Literal["out", "in"]
    neighbour: Named


class Surroundings(EntityOut):
    edges: list[NeighbourOut]


class RelationOut(Named):
    triples: int


class Relations(BaseModel):
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


class Reloaded(BaseModel):
    checkpoint: str


class Status(BaseModel):
    status: Literal["ok", "ready", "loading", "stopping"]


class ErrorOut(BaseModel):
    code: str
    message: str
    field: str | None


class Failed(BaseModel):
    error: ErrorOut
