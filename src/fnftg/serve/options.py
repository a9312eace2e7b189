"""What `fnftg serve` was asked for, as it reaches the app, also that of a worker in a process of its own."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "FNFTG_SERVE"  # of the environment of workers


@dataclass(frozen=True)
class Options:
    run: str
    graph: str | None = None
    index: str | None = None
    token: str | None = None
    queue: int = 256  # requests that may wait
    deadline: float = 30.0  # seconds
    tokens: int = 4096  # words of new texts in a batch
    batching: bool = True
    generation: str | None = None  # a file that is rewritten when all workers are to reload

    def to_environment(self) -> None:
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Options:
        return cls(**json.loads(os.environ[VARIABLE]))
