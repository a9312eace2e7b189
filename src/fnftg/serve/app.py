"""The app: what its routes share, and the routes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from pydantic import BaseModel
from starlette.staticfiles import StaticFiles

import fnftg
from fnftg.errors import FnftgError
from fnftg.predict.predictor import Predictor
from fnftg.predict.questions import ResolvedQuery
from fnftg.predict.vectors import entity_vectors
from fnftg.serve import asking, entities, schemas
from fnftg.serve.batching import Batcher, Questions
from fnftg.serve.body import BoundedRoute
from fnftg.serve.errors import JSON, Refusal, add_error_handlers, json_response
from fnftg.serve.guarding import Guard
from fnftg.serve.loading import Keeper, Served
from fnftg.serve.metrics import Measured, Metrics
from fnftg.serve.options import Options
from fnftg.serve.signals import heard

PAGE = Path(__file__).parent / "page"
LOOKING_UP = 2  # threads that find names
WHY = {
    401: "The token is missing or wrong.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "The checkpoint is no good; the old one serves on.",
    413: "The body is too large.",
    415: "The body is not announced as JSON.",
    422: "The request is invalid; the field is named.",
    429: "Too many requests wait: see Retry-After.",
    503: "The model is being loaded, or the server is stopping.",
    504: "There was no answer before the deadline.",
}
COMPUTED = (408, 413, 415, 422, 429, 503, 504)  # how a route that reads a body and computes may refuse
Found = TypeVar("Found")


class Rooms:
    """What the routes share: the model that answers, the queue, and threads that look things up."""

    def __init__(self, options: Options):
        self.options, self.metrics = options, Metrics()
        self.keeper = Keeper(options, self.metrics)
        self.batcher = Batcher(self.metrics, options.queue, options.deadline, options.tokens, options.batching)
        self.threads = ThreadPoolExecutor(LOOKING_UP, thread_name_prefix="fnftg-names")

    @contextlib.asynccontextmanager
    async def open(self, failed: Callable[[FnftgError], None]) -> AsyncIterator[None]:
        """While the app lives; `failed` is told where the first model cannot be loaded."""

        async def first_model() -> None:
            try:
                await self.keeper.load()
            except FnftgError as error:
                failed(error)

        tasks = [asyncio.create_task(first_model())]
        if self.options.generation is not None:
            tasks.append(asyncio.create_task(self.keeper.watch()))
        computing = asyncio.create_task(self.batcher.run())
        with heard(self.keeper):
            yield
        self.keeper.stopping = True
        for task in tasks:
            task.cancel()
        await self.batcher.stop(computing)
        self.threads.shutdown()
        self.keeper.thread.shutdown()

    def served(self) -> Served:
        """The model that answers a request to its end, whatever is loaded meanwhile."""
        if self.keeper.now is None:
            raise Refusal(503, "loading", "The model is being loaded.", headers={"Retry-After": "5"})
        return self.keeper.now

    async def looked_up(self, find: Callable[..., Found], *arguments: Any) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self.threads, find, *arguments)

    async def computed(self, work: Questions | Callable[[], Any], request: Request) -> Response:
        try:
            return Response(await self.batcher.ask(work, request.is_disconnected), media_type=JSON)
        except FnftgError as error:
            raise Refusal(422, "invalid", str(error)) from error


def make_app(options: Options, failed: Callable[[FnftgError], None] = lambda error: None) -> FastAPI:
    rooms = Rooms(options)
    app = FastAPI(
        title="fnftg",
        summary=str(fnftg.__doc__),
        version=fnftg.__version__,
        lifespan=lambda _: rooms.open(failed),
        docs_url=None,
        redoc_url=None,
    )
    app.state.rooms = rooms
    add_error_handlers(app)
    app.router.route_class = BoundedRoute
    add_questions(app, rooms)
    add_graph(app, rooms)
    add_operation(app, rooms)
    app.add_api_route("/", page, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE, check_dir=False))
    app.add_middleware(Guard, token=options.token)
    app.add_middleware(Measured, metrics=rooms.metrics)  # the last is the outermost
    return app


def app_of_worker() -> FastAPI:
    """In a process of its own, whose parent has loaded the model once."""
    return make_app(Options.from_environment())


def described(answer: type[BaseModel], *refusals: int) -> dict[str, Any]:
    """The responses of a route, for OpenAPI: what it answers, and how it may refuse."""
    errors = {status: {"model": schemas.Failed, "description": WHY[status]} for status in (401, *refusals)}
    return {"responses": {200: {"model": answer}, **errors}, "response_model": None}


def add_questions(app: FastAPI, rooms: Rooms) -> None:
    """What the model computes."""
    ask: dict[str, Any] = {"tags": ["Ask the model"]}

    @app.post("/v1/predict", **ask, **described(schemas.Predicted, *COMPUTED))
    async def predict(body: schemas.PredictBody, request: Request) -> Response:
        """The likeliest answers to each query, best first."""
        served = rooms.served()
        asked = await rooms.looked_up(asking.questions, body, served.predictor)
        return await rooms.computed(Questions(served, asked, body.k, body.known), request)

    @app.post("/v1/explain", **ask, **described(schemas.Explained, *COMPUTED))
    async def explain(body: schemas.ExplainBody, request: Request) -> Response:
        """The reasons for a triple: what its edges and words add to the score."""
        predictor = rooms.served().predictor
        await rooms.looked_up(asking.check_triple, body, predictor)
        reasons = partial(predictor.explain, *body.triple(), body.asked, body.hide, body.nearest)
        return await rooms.computed(reasons, request)

    @app.post("/v1/embed", **ask, **described(schemas.Embedded, *COMPUTED))
    async def embed(body: schemas.EmbedBody, request: Request) -> Response:
        """The vectors of entities."""
        predictor = rooms.served().predictor
        asked = await rooms.looked_up(asking.entities, body, predictor)
        return await rooms.computed(partial(embedded, predictor, asked), request)


def embedded(predictor: Predictor, asked: list[ResolvedQuery]) -> dict[str, Any]:
    vectors, ids = entity_vectors(predictor, asked), predictor.graph.entities.ids
    return {
        "width": vectors.shape[1],
        "vectors": [
            {"id": one.delta.ids[0] if one.delta else ids[one.head], "vector": vector}
            for one, vector in zip(asked, vectors.tolist(), strict=True)
        ],
    }


def add_graph(app: FastAPI, rooms: Rooms) -> None:
    """What is looked up."""
    look: dict[str, Any] = {"tags": ["Look around"]}

    @app.get("/v1/entities", **look, **described(schemas.Entities, 422, 503))
    async def search(asked: Annotated[schemas.SearchQuery, Query()]) -> Response:
        """Entities whose id or name begins as given, then those that are spelled alike."""
        found = await rooms.looked_up(entities.search, rooms.served().predictor, asked.q, asked.limit)
        return json_response({"entities": found})

    @app.get("/v1/entities/{id:path}", **look, **described(schemas.Surroundings, 404, 422, 503))
    async def entity(id: str, asked: Annotated[schemas.EntityQuery, Query()]) -> Response:
        """An entity and the first of its edges."""
        predictor = rooms.served().predictor
        row = predictor.graph.entities.find(id)
        if row is None:
            raise Refusal(404, "not_found", "The graph has no entity with this id.", "id")
        return json_response(await rooms.looked_up(entities.surroundings, predictor, row, asked.limit))

    @app.get("/v1/relations", **look, **described(schemas.Relations, 503))
    async def relations() -> Response:
        """All relations, the most frequent first."""
        found = await rooms.looked_up(entities.all_relations, rooms.served().predictor)
        return json_response({"relations": found})

    @app.get("/v1/model", **look, **described(schemas.ModelOut, 503))
    async def model() -> Response:
        """What answers here."""
        return json_response(rooms.served().about)


def add_operation(app: FastAPI, rooms: Rooms) -> None:
    """For those who keep it running."""
    keep: dict[str, Any] = {"tags": ["Keep it running"]}
    not_ready: dict[int | str, Any] = {503: {"model": schemas.Status, "description": WHY[503]}}

    @app.get("/healthz", **keep, response_model=schemas.Status)
    async def alive() -> Response:
        """The process lives."""
        return json_response({"status": "ok"})

    @app.get("/readyz", **keep, response_model=schemas.Status, responses=not_ready)
    async def ready() -> Response:
        """Questions are answered."""
        keeper = rooms.keeper
        status = "stopping" if keeper.stopping else "loading" if keeper.now is None else "ready"
        return json_response({"status": status}, 200 if status == "ready" else 503)

    @app.get(
        "/metrics",
        **keep,
        response_class=PlainTextResponse,
        responses={
            401: {"content": {JSON: {"schema": {"$ref": "#/components/schemas/Failed"}}}, "description": WHY[401]}
        },
    )
    async def metrics() -> Response:
        """For Prometheus."""
        return PlainTextResponse(rooms.metrics.text())

    @app.post("/v1/admin/reload", **keep, **described(schemas.Reloaded, 408, 409, 413, 415, 422))
    async def reload(body: schemas.ReloadBody | None = None) -> Response:
        """Loads the checkpoint that is in the run's folder now; requests go on meanwhile."""
        try:
            served = await rooms.keeper.reload()
        except FnftgError as error:
            raise Refusal(409, "checkpoint", f"{error} The old checkpoint serves on.") from error
        return json_response({"checkpoint": served.checkpoint})


async def page() -> Response:
    """The web page."""
    index = PAGE / "index.html"
    if not index.is_file():
        raise Refusal(404, "not_found", "This installation has no web page.")
    return FileResponse(index, media_type="text/html; charset=utf-8")
