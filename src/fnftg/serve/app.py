"""The app: the state that its routes share, and the routes."""

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
from fnftg.serve import graph_lookup, query_resolution, schemas
from fnftg.serve.api_errors import JSON, ApiError, add_error_handlers, json_response
from fnftg.serve.auth import AuthMiddleware
from fnftg.serve.batch_queue import Batcher, PredictRequest
from fnftg.serve.model_manager import LoadedModel, ModelManager
from fnftg.serve.options import Options
from fnftg.serve.request_body import BoundedRoute
from fnftg.serve.server_metrics import Metrics, MetricsMiddleware
from fnftg.serve.signals import install_signal_handlers

PAGE = Path(__file__).parent / "page"
LOOKUP_THREADS = 2
ERROR_DESCRIPTIONS = {
    401: "The token is missing or wrong.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "The checkpoint cannot be loaded; the server continues with the old one.",
    413: "The body is too large.",
    415: "The Content-Type is not JSON.",
    422: "The request is invalid; `field` names the part that is wrong.",
    429: "Too many requests are waiting: see Retry-After.",
    503: "The model is being loaded, or the server is stopping.",
    504: "There was no answer before the deadline.",
}
COMPUTE_ERRORS = (408, 413, 415, 422, 429, 503, 504)  # of a route that reads a body and runs the model
Found = TypeVar("Found")


class AppState:
    """What the routes share: the model manager, the batch queue, and the threads that look up entities and names."""

    def __init__(self, options: Options):
        self.options, self.metrics = options, Metrics()
        self.manager = ModelManager(options, self.metrics)
        self.batcher = Batcher(self.metrics, options.queue, options.deadline, options.tokens, options.batching)
        self.threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="fnftg-lookup")

    @contextlib.asynccontextmanager
    async def open(self, failed: Callable[[FnftgError], None]) -> AsyncIterator[None]:
        """The lifespan of the app; calls `failed` if the first model cannot be loaded."""

        async def load_first_model() -> None:
            try:
                await self.manager.load()
            except FnftgError as error:
                failed(error)

        tasks = [asyncio.create_task(load_first_model())]
        if self.options.generation is not None:
            tasks.append(asyncio.create_task(self.manager.watch()))
        batches = asyncio.create_task(self.batcher.run())
        with install_signal_handlers(self.manager):
            yield
        self.manager.stopping = True
        for task in tasks:
            task.cancel()
        await self.batcher.stop(batches)
        self.threads.shutdown()
        self.manager.thread.shutdown()

    def current_model(self) -> LoadedModel:
        """The model that answers a request. The request keeps it to its end, even if another is loaded meanwhile."""
        if self.manager.current is None:
            raise ApiError(503, "loading", "The model is being loaded.", headers={"Retry-After": "5"})
        return self.manager.current

    async def look_up(self, find: Callable[..., Found], *arguments: Any) -> Found:
        """Runs a search of names or of memory-mapped arrays outside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, find, *arguments)

    async def compute(self, work: PredictRequest | Callable[[], Any], request: Request) -> Response:
        try:
            return Response(await self.batcher.submit(work, request.is_disconnected), media_type=JSON)
        except FnftgError as error:
            raise ApiError(422, "invalid", str(error)) from error


def make_app(options: Options, failed: Callable[[FnftgError], None] = lambda error: None) -> FastAPI:
    state = AppState(options)
    app = FastAPI(
        title="fnftg",
        summary=str(fnftg.__doc__),
        version=fnftg.__version__,
        lifespan=lambda _: state.open(failed),
        docs_url=None,
        redoc_url=None,
    )
    app.state.shared = state
    add_error_handlers(app)
    app.router.route_class = BoundedRoute
    add_model_routes(app, state)
    add_graph_routes(app, state)
    add_operation_routes(app, state)
    app.add_api_route("/", page, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=PAGE, check_dir=False))
    app.add_middleware(AuthMiddleware, token=options.token)
    app.add_middleware(MetricsMiddleware, metrics=state.metrics)  # the last one added is the outermost
    return app


def make_worker_app() -> FastAPI:
    """The app of a worker process; its parent has loaded the model once already."""
    return make_app(Options.from_environment())


def responses(answer: type[BaseModel], *statuses: int) -> dict[str, Any]:
    """The responses of a route for OpenAPI: its answer and its errors."""
    errors = {
        status: {"model": schemas.FailureOut, "description": ERROR_DESCRIPTIONS[status]} for status in (401, *statuses)
    }
    return {"responses": {200: {"model": answer}, **errors}, "response_model": None}


def add_model_routes(app: FastAPI, state: AppState) -> None:
    """Routes that run the model."""
    tags: dict[str, Any] = {"tags": ["Model"]}

    @app.post("/v1/predict", **tags, **responses(schemas.PredictOut, *COMPUTE_ERRORS))
    async def predict(body: schemas.PredictBody, request: Request) -> Response:
        """The most likely answers to each query, best first."""
        model = state.current_model()
        queries = await state.look_up(query_resolution.resolve_queries, body, model.predictor)
        return await state.compute(PredictRequest(model, queries, body.k, body.known), request)

    @app.post("/v1/explain", **tags, **responses(schemas.ExplanationOut, *COMPUTE_ERRORS))
    async def explain(body: schemas.ExplainBody, request: Request) -> Response:
        """The reasons for a triple: what its edges, its words and each source of evidence add to the score."""
        predictor = state.current_model().predictor
        await state.look_up(query_resolution.check_triple, body, predictor)
        explanation = partial(predictor.explain, *body.triple(), body.asked, body.hide, body.nearest)
        return await state.compute(explanation, request)

    @app.post("/v1/embed", **tags, **responses(schemas.VectorsOut, *COMPUTE_ERRORS))
    async def embed(body: schemas.EmbedBody, request: Request) -> Response:
        """The vectors of entities."""
        predictor = state.current_model().predictor
        entities = await state.look_up(query_resolution.resolve_entities, body, predictor)
        return await state.compute(partial(embed_entities, predictor, entities), request)


def embed_entities(predictor: Predictor, entities: list[ResolvedQuery]) -> dict[str, Any]:
    vectors, ids = entity_vectors(predictor, entities), predictor.graph.entities.ids  # (n, d)
    return {
        "width": vectors.shape[1],
        "vectors": [
            {"id": entity.delta.ids[0] if entity.delta else ids[entity.head], "vector": vector}
            for entity, vector in zip(entities, vectors.tolist(), strict=True)
        ],
    }


def add_graph_routes(app: FastAPI, state: AppState) -> None:
    """Routes that read the graph; all of their searches run on the look-up threads."""
    tags: dict[str, Any] = {"tags": ["Graph"]}

    @app.get("/v1/entities", **tags, **responses(schemas.EntitiesOut, 422, 503))
    async def search(query: Annotated[schemas.SearchQuery, Query()]) -> Response:
        """Entities whose id or name starts with the query, then those with a similar spelling."""
        predictor = state.current_model().predictor
        found = await state.look_up(graph_lookup.search_entities, predictor, query.q, query.limit)
        return json_response({"entities": found})

    @app.get("/v1/entities/{id:path}", **tags, **responses(schemas.EntityWithEdgesOut, 404, 422, 503))
    async def entity(id: str, query: Annotated[schemas.EntityQuery, Query()]) -> Response:
        """An entity and its first edges."""
        predictor = state.current_model().predictor
        found = await state.look_up(graph_lookup.entity_with_edges, predictor, id, query.limit)
        if found is None:
            raise ApiError(404, "not_found", "The graph has no entity with this id.", "id")
        return json_response(found)

    @app.get("/v1/relations", **tags, **responses(schemas.RelationsOut, 503))
    async def relations() -> Response:
        """All relations, the most frequent first."""
        found = await state.look_up(graph_lookup.all_relations, state.current_model().predictor)
        return json_response({"relations": found})

    @app.get("/v1/model", **tags, **responses(schemas.ModelOut, 503))
    async def model() -> Response:
        """The model and the graph that answer."""
        return json_response(state.current_model().info)


def add_operation_routes(app: FastAPI, state: AppState) -> None:
    """Routes for whoever runs the server."""
    tags: dict[str, Any] = {"tags": ["Operation"]}
    not_ready: dict[int | str, Any] = {503: {"model": schemas.StatusOut, "description": ERROR_DESCRIPTIONS[503]}}
    unauthorized = {
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/FailureOut"}}},
        "description": ERROR_DESCRIPTIONS[401],
    }

    @app.get("/healthz", **tags, response_model=schemas.StatusOut)
    async def healthz() -> Response:
        """The process is alive."""
        return json_response({"status": "ok"})

    @app.get("/readyz", **tags, response_model=schemas.StatusOut, responses=not_ready)
    async def readyz() -> Response:
        """The model is loaded and the server answers queries."""
        manager = state.manager
        status = "stopping" if manager.stopping else "loading" if manager.current is None else "ready"
        return json_response({"status": status}, 200 if status == "ready" else 503)

    @app.get("/metrics", **tags, response_class=PlainTextResponse, responses={401: unauthorized})
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return PlainTextResponse(state.metrics.text())

    @app.post("/v1/admin/reload", **tags, **responses(schemas.ReloadOut, 408, 409, 413, 415, 422))
    async def reload(body: schemas.ReloadBody | None = None) -> Response:
        """Loads the checkpoint that is in the run's folder now; the server answers requests meanwhile."""
        try:
            model = await state.manager.reload()
        except FnftgError as error:
            raise ApiError(409, "checkpoint", f"{error} The server continues with the old checkpoint.") from error
        return json_response({"checkpoint": model.checkpoint})


async def page() -> Response:
    """The web page."""
    index = PAGE / "index.html"
    if not index.is_file():
        raise ApiError(404, "not_found", "This installation has no web page.")
    return FileResponse(index, media_type="text/html; charset=utf-8")
