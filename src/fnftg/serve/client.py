"""A Python client of the HTTP API, with the methods of `Predictor`.

from fnftg.serve.client import Client

with Client("http://127.0.0.1:8000") as client:
    answers = client.tails("poodle.n.01", "hypernym", k=5)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from fnftg.arrays import Float32Array
from fnftg.errors import FnftgError
from fnftg.predict.questions import Answer, EntityName, NewEntity, Question, Relation, RelationName


class Client:
    """Raises `FnftgError` with the server's message. Close it with `close`, or use it in a `with` block."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()

    def tails(self, head: EntityName, relation: RelationName, k: int = 10, known: bool = False) -> list[Answer]:
        """The k most likely tails."""
        return self.predict([Question(head=head, relation=relation)], k, known)[0]

    def heads(self, relation: RelationName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """The k most likely heads."""
        return self.predict([Question(relation=relation, tail=tail)], k, known)[0]

    def relations_between(self, head: EntityName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """The k most likely relations from head to tail."""
        return self.predict([Question(head=head, tail=tail)], k, known)[0]

    def predict(self, questions: Sequence[Question], k: int = 10, known: bool = False) -> list[list[Answer]]:
        """The answers to up to 32 questions."""
        queries = [as_json(one.head, one.relation, one.tail) for one in questions]
        found = self._post("/v1/predict", {"queries": queries, "k": k, "known": known})
        return [[Answer(**answer) for answer in result["answers"]] for result in found["results"]]

    def explain(
        self,
        head: EntityName,
        relation: RelationName,
        tail: EntityName,
        asked: str = "tail",
        hide: bool = True,
        nearest: int = 5,
    ) -> dict[str, Any]:
        """The reasons for a triple, as in `Explanation.as_dict`."""
        triple = as_json(head, relation, tail)
        return self._post("/v1/explain", {**triple, "asked": asked, "hide": hide, "nearest": nearest})

    def embed(self, entities: Sequence[EntityName]) -> Float32Array:
        """The vectors of up to 32 entities: (n, d)."""
        found = self._post("/v1/embed", {"entities": [as_json(entity)["head"] for entity in entities]})
        vectors = [one["vector"] for one in found["vectors"]]
        return np.array(vectors, np.float32).reshape(len(vectors), found["width"])

    def entities(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Entities whose id or name starts with the query: id, name, text and degree of each."""
        found: list[dict[str, Any]] = self._get("/v1/entities", q=query, limit=limit)["entities"]
        return found

    def entity(self, id: str, limit: int = 30) -> dict[str, Any]:
        """An entity and its first edges."""
        return self._get(f"/v1/entities/{quote(id, safe='')}", limit=limit)

    def relations(self) -> list[dict[str, Any]]:
        """All relations, the most frequent first."""
        found: list[dict[str, Any]] = self._get("/v1/relations")["relations"]
        return found

    def model(self) -> dict[str, Any]:
        """The model and the graph of the server."""
        return self._get("/v1/model")

    def reload(self) -> str:
        """Loads the newest checkpoint in the server's folder and returns its checksum."""
        return str(self._post("/v1/admin/reload", {})["checkpoint"])

    def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return self._answer("GET", path, params=parameters)

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        return self._answer("POST", path, json=body)

    def _answer(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        try:
            response = self.http.request(method, path, **content)
            value = response.json()
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise FnftgError(f"{self.http.base_url} does not answer: {reason.rstrip('.')}.") from error
        except ValueError as error:
            raise FnftgError(f"{self.http.base_url} is not an fnftg server: its response is not JSON.") from error
        if response.is_success and isinstance(value, dict):
            return value
        try:
            message, field = value["error"]["message"], value["error"]["field"]
        except (LookupError, TypeError) as error:
            raise FnftgError(f"{self.http.base_url} answered with the status {response.status_code}.") from error
        raise FnftgError(f"{field}: {message}" if field else message)


def as_json(
    head: EntityName | None, relation: RelationName | None = None, tail: EntityName | None = None
) -> dict[str, Any]:
    """A query in the server's JSON. A new entity that occurs more than once is written in full once, then by its id."""
    written_entities: list[NewEntity] = []

    def written(part: EntityName | RelationName | None) -> Any:
        if isinstance(part, Relation):
            return {"text": part.text}
        if not isinstance(part, NewEntity):
            return part
        if any(part is other for other in written_entities):
            if part.id is None:
                raise FnftgError("A new entity is linked to more than once: give it an id.")
            return part.id
        written_entities.append(part)
        edges, incoming = (
            [[written(relation), written(entity)] for relation, entity in pairs]
            for pairs in (part.edges, part.incoming)
        )
        return {"text": part.text, "edges": edges, "incoming": incoming, **({} if part.id is None else {"id": part.id})}

    parts = {"head": head, "relation": relation, "tail": tail}
    return {name: written(part) for name, part in parts.items() if part is not None}
