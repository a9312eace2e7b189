"""A Python client for the HTTP API, with the methods of `Predictor`.

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
    """A client for `fnftg serve`. Close it with `close`, or use it in a `with` block.

    Args:
        url: the address of the server, such as http://127.0.0.1:8000.
        token: the server's token, if it has one.
        timeout: seconds to wait for a response.

    All methods raise `FnftgError` with the server's message.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def tails(self, head: EntityName, relation: RelationName, k: int = 10, known: bool = False) -> list[Answer]:
        """Predict the k most likely tails. The arguments are as in `Predictor.tails`."""
        return self.predict([Question(head=head, relation=relation)], k, known)[0]

    def heads(self, relation: RelationName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """Predict the k most likely heads."""
        return self.predict([Question(relation=relation, tail=tail)], k, known)[0]

    def relations_between(self, head: EntityName, tail: EntityName, k: int = 10, known: bool = False) -> list[Answer]:
        """Predict the k most likely relations from head to tail."""
        return self.predict([Question(head=head, tail=tail)], k, known)[0]

    def predict(self, questions: Sequence[Question], k: int = 10, known: bool = False) -> list[list[Answer]]:
        """Answer up to 32 questions."""
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
        """Explain the score of a triple; the result is as in `Explanation.as_dict`."""
        triple = as_json(head, relation, tail)
        return self._post("/v1/explain", {**triple, "asked": asked, "hide": hide, "nearest": nearest})

    def embed(self, entities: Sequence[EntityName]) -> Float32Array:
        """Return the embeddings (n, d) of up to 32 entities."""
        found = self._post("/v1/embed", {"entities": [as_json(entity)["head"] for entity in entities]})
        vectors = [one["vector"] for one in found["vectors"]]
        return np.array(vectors, np.float32).reshape(len(vectors), found["width"])

    def entities(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Search entities whose id or name starts with the query; return id, name, text and degree of each."""
        found: list[dict[str, Any]] = self._get("/v1/entities", q=query, limit=limit)["entities"]
        return found

    def entity(self, id: str, limit: int = 30) -> dict[str, Any]:
        """Return an entity and its first edges."""
        return self._get(f"/v1/entities/{quote(id, safe='')}", limit=limit)

    def relations(self) -> list[dict[str, Any]]:
        """List all relations, the most frequent first."""
        found: list[dict[str, Any]] = self._get("/v1/relations")["relations"]
        return found

    def model(self) -> dict[str, Any]:
        """Describe the server's model and graph."""
        return self._get("/v1/model")

    def reload(self) -> str:
        """Load the newest checkpoint in the server's folder, and return its checksum."""
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
            raise FnftgError(f"Cannot reach {self.http.base_url}: {reason.rstrip('.')}.") from error
        except ValueError as error:
            raise FnftgError(f"{self.http.base_url} is not an fnftg server: its response is not JSON.") from error
        if response.is_success and isinstance(value, dict):
            return value
        try:
            message, field = value["error"]["message"], value["error"]["field"]
        except (LookupError, TypeError) as error:
            raise FnftgError(f"{self.http.base_url} answered with status {response.status_code}.") from error
        raise FnftgError(f"{field}: {message}" if field else message)


def as_json(
    head: EntityName | None, relation: RelationName | None = None, tail: EntityName | None = None
) -> dict[str, Any]:
    """Return a query as JSON. A new entity that occurs more than once is written in full once, then by its id."""
    written_entities: list[NewEntity] = []

    def written(part: EntityName | RelationName | None) -> Any:
        if isinstance(part, Relation):
            return {"text": part.text}
        if not isinstance(part, NewEntity):
            return part
        if any(part is other for other in written_entities):
            if part.id is None:
                raise FnftgError("A new entity occurs more than once in the query: give it an id.")
            return part.id
        written_entities.append(part)
        edges, incoming = (
            [[written(relation), written(entity)] for relation, entity in pairs]
            for pairs in (part.edges, part.incoming)
        )
        return {"text": part.text, "edges": edges, "incoming": incoming, **({} if part.id is None else {"id": part.id})}

    parts = {"head": head, "relation": relation, "tail": tail}
    return {name: written(part) for name, part in parts.items() if part is not None}
