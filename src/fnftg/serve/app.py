"""The FastAPI app: shared state and routes."""

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
from fnftg.memory import share_free_memory
from fnftg.predict.predictor import Predictor
from fnftg.predict.questions import ResolvedQuery
from fnftg.predict.vectors import entity_vectors
from fnftg.serve import graph_lookup, query_resolution, schemas
from fnftg.serve.api_errors import JSON, ApiError, add_error_handlers, json_response
from fnftg.serve.auth import AuthMiddleware
from fnftg.serve.batch_queue import Batcher, PredictRequest, in_time
from fnftg.serve.browser_guard import BrowserGuardMiddleware
from fnftg.serve.client_share import ClientShareMiddleware
from fnftg.serve.connection_table import client_of
from fnftg.serve.model_manager import LoadedModel, ModelManager
from fnftg.serve.options import Options
from fnftg.serve.request_body import BoundedRoute
from fnftg.serve.server_metrics import Metrics, MetricsMiddleware
from fnftg.serve.signals import install_signal_handlers

PAGE = Path(__file__).parent / "page"
LOOKUP_THREADS = 2
ERROR_DESCRIPTIONS = {
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site, or its Host is not allowed.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "The checkpoint cannot be loaded; the server continues with the old one.",
    413: "The body is too large.",
    415: "The Content-Type is not JSON.",
    422: "The request is invalid; `field` names the part that is wrong.",
    429: "Too many requests are waiting: see Retry-After.",
    431: "The URL and the headers are too large.",
    503: "The model is being loaded, or the server is stopping.",
    504: "The answer was not ready before the deadline.",
}
ANY_ROUTE_ERRORS = (401, 403, 429, 431)
COMPUTE_ERRORS = (408, 413, 415, 422, 503, 504)  # for routes that read a body and run the model
Found = TypeVar("Found")


class AppState:
    """State shared by all routes: the model manager, the batch queue, and the threads for look-ups."""

    def __init__(self, options: Options):
        self.options, self.metrics = options, Metrics()
        self.manager = ModelManager(options, self.metrics)
        self.batcher = Batcher(self.metrics, options.queue, options.deadline, options.tokens, options.batching)
        self.threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="fnftg-lookup")

    @contextlib.asynccontextmanager
    async def open(self, failed: Callable[[FnftgError], None]) -> AsyncIterator[None]:
        """Run the app's lifespan. Call `failed` if the first model cannot be loaded."""

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
        """Return the current model. A request uses it to its end, even if another model is loaded meanwhile."""
        if self.manager.current is None:
            raise ApiError(
                503, "loading", "The model is being loaded: try again in a few seconds.", headers={"Retry-After": "5"}
            )
        return self.manager.current

    async def look_up(self, find: Callable[..., Found], *arguments: Any) -> Found:
        """Run a search of names or memory-mapped arrays on a look-up thread."""
        search = asyncio.get_running_loop().run_in_executor(self.threads, find, *arguments)
        return await in_time(search, self.options.deadline)

    async def compute(self, work: PredictRequest | Callable[[], Any], request: Request, heavy: bool) -> Response:
        try:
            client = client_of(request.client)
            return Response(await self.batcher.submit(work, request.is_disconnected, client, heavy), media_type=JSON)
        except FnftgError as error:
            raise ApiError(422, "invalid", str(error)) from error


def make_app(options: Options, failed: Callable[[FnftgError], None] = lambda error: None) -> FastAPI:
    """Create the app. It calls `failed` if the first model cannot be loaded."""
    share_free_memory()
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
    if not options.behind_proxy:
        app.add_middleware(ClientShareMiddleware, most=max(options.queue // 2, 1))
    app.add_middleware(AuthMiddleware, token=options.token, https=options.behind_https)
    app.add_middleware(BrowserGuardMiddleware, options=options)
    app.add_middleware(MetricsMiddleware, metrics=state.metrics)  # added last, so it is the outermost
    return app


def make_worker_app() -> FastAPI:
    """Create the app of a worker process. The parent process has already loaded the model once."""
    return make_app(Options.from_environment())


def responses(answer: type[BaseModel], *statuses: int) -> dict[str, Any]:
    """Return the responses of a route for OpenAPI: the answer and the errors."""
    errors = {
        status: {"model": schemas.FailureOut, "description": ERROR_DESCRIPTIONS[status]}
        for status in (*ANY_ROUTE_ERRORS, *statuses)
    }
    return {"responses": {200: {"model": answer}, **errors}, "response_model": None}


def add_model_routes(app: FastAPI, state: AppState) -> None:
    """Add the routes that run the model."""
    tags: dict[str, Any] = {"tags": ["Model"]}

    @app.post("/v1/predict", **tags, **responses(schemas.PredictOut, *COMPUTE_ERRORS))
    async def predict(body: schemas.PredictBody, request: Request) -> Response:
        """Predict the most likely answers to each query, best first."""
        model = state.current_model()
        queries = await state.look_up(query_resolution.resolve_queries, body, model.predictor)
        return await state.compute(
            PredictRequest(model, queries, body.k, body.known, body.min_missing), request, body.is_heavy
        )

    @app.post("/v1/explain", **tags, **responses(schemas.ExplanationOut, *COMPUTE_ERRORS))
    async def explain(body: schemas.ExplainBody, request: Request) -> Response:
        """Explain the score of a triple: the effect of its edges, its words and each source of evidence."""
        predictor = state.current_model().predictor
        await state.look_up(query_resolution.check_triple, body, predictor)
        explanation = partial(predictor.explain, *body.triple(), body.asked, body.hide, body.nearest)
        return await state.compute(explanation, request, heavy=True)

    @app.post("/v1/embed", **tags, **responses(schemas.VectorsOut, *COMPUTE_ERRORS))
    async def embed(body: schemas.EmbedBody, request: Request) -> Response:
        """Return the embeddings of entities."""
        predictor = state.current_model().predictor
        entities = await state.look_up(query_resolution.resolve_entities, body, predictor)
        return await state.compute(partial(embed_entities, predictor, entities), request, body.is_heavy)


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
    """Add the routes that read the graph. All searches run on the look-up threads."""
    tags: dict[str, Any] = {"tags": ["Graph"]}

    @app.get("/v1/entities", **tags, **responses(schemas.EntitiesOut, 422, 503, 504))
    async def search(query: Annotated[schemas.SearchQuery, Query()]) -> Response:
        """Search entities whose id or name starts with the query, followed by entities with a similar spelling."""
        predictor = state.current_model().predictor
        found = await state.look_up(graph_lookup.search_entities, predictor, query.q, query.limit)
        return json_response({"entities": found})

    @app.get("/v1/entities/{id:path}", **tags, **responses(schemas.EntityWithEdgesOut, 404, 422, 503, 504))
    async def entity(id: str, query: Annotated[schemas.EntityQuery, Query()]) -> Response:
        """Return an entity and its first edges."""
        predictor = state.current_model().predictor
        found = await state.look_up(graph_lookup.entity_with_edges, predictor, id, query.limit)
        if found is None:
            raise ApiError(404, "not_found", "The graph has no entity with this id: search with /v1/entities?q=.", "id")
        return json_response(found)

    @app.get("/v1/relations", **tags, **responses(schemas.RelationsOut, 503, 504))
    async def relations() -> Response:
        """List all relations, the most frequent first."""
        found = await state.look_up(graph_lookup.all_relations, state.current_model().predictor)
        return json_response({"relations": found})

    @app.get("/v1/model", **tags, **responses(schemas.ModelOut, 503))
    async def model() -> Response:
        """Describe the current model and its graph."""
        return json_response(state.current_model().info)


def add_operation_routes(app: FastAPI, state: AppState) -> None:
    """Add the routes for monitoring and administration."""
    tags: dict[str, Any] = {"tags": ["Operation"]}
    too_large = {"model": schemas.FailureOut, "description": ERROR_DESCRIPTIONS[431]}
    not_ready = {"model": schemas.StatusOut, "description": ERROR_DESCRIPTIONS[503]}
    failures: dict[int | str, Any] = {
        status: {
            "content": {JSON: {"schema": {"$ref": "#/components/schemas/FailureOut"}}},
            "description": ERROR_DESCRIPTIONS[status],
        }
        for status in ANY_ROUTE_ERRORS
    }

    @app.get("/healthz", **tags, response_model=schemas.StatusOut, responses={431: too_large})
    async def healthz() -> Response:
        """Return 200 if the process is alive."""
        return json_response({"status": "ok"})

    @app.get("/readyz", **tags, response_model=schemas.StatusOut, responses={431: too_large, 503: not_ready})
    async def readyz() -> Response:
        """Return 200 if the model is loaded and the server answers queries."""
        manager = state.manager
        status = "stopping" if manager.stopping else "loading" if manager.current is None else "ready"
        return json_response({"status": status}, 200 if status == "ready" else 503)

    @app.get("/metrics", **tags, response_class=PlainTextResponse, responses=failures)
    async def metrics() -> Response:
        """Return metrics in Prometheus format."""
        return PlainTextResponse(state.metrics.text())

    @app.post("/v1/admin/reload", **tags, **responses(schemas.ReloadOut, 408, 409, 413, 415, 422))
    async def reload(body: schemas.ReloadBody | None = None) -> Response:
        """Load the newest checkpoint in the run's folder. Requests are answered meanwhile."""
        if state.manager.lock.locked():
            raise ApiError(
                429, "busy", "A model is already being loaded: try again in a second.", headers={"Retry-After": "1"}
            )
        try:
            model = await state.manager.reload()
        except FnftgError as error:
            raise ApiError(409, "checkpoint", f"{error} The server continues with the old checkpoint.") from error
        return json_response({"checkpoint": model.checkpoint})


async def page() -> Response:
    """Return the web page."""
    index = PAGE / "index.html"
    if not index.is_file():
        raise ApiError(404, "not_found", "This installation has no web page.")
    return FileResponse(index, media_type="text/html; charset=utf-8")
