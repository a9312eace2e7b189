"""The options of `fnftg serve`; worker processes read them from the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "FNFTG_SERVE"  # environment variable of the workers


@dataclass(frozen=True)
class Options:
    run: str
    graph: str | None = None
    index: str | None = None
    token: str | None = None
    queue: int = 256  # maximum number of waiting requests
    deadline: float = 30.0  # seconds
    tokens: int = 4096  # maximum words of new texts in a batch
    batching: bool = True
    generation: str | None = None  # a file; when its content changes all workers reload

    def to_environment(self) -> None:
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Options:
        return cls(**json.loads(os.environ[VARIABLE]))
