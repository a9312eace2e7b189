"""API errors: {"error": {"code", "message", "field"}}. The message is one sentence that says what to change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException as StarletteError
from starlette.responses import Response

from fnftg.serve.schemas import NAME, NEW

logger = logging.getLogger("fnftg.serve")
JSON = "application/json"
PLAIN_CODES = {404: "not_found", 405: "method_not_allowed"}
MESSAGES = {"missing": "This field is missing", "extra_forbidden": "This field is unknown: remove it"}


class ApiError(HTTPException):
    """An error response: status, code, message and, if one is to blame, the field of the request."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, headers: dict[str, str] | None = None
    ):
        super().__init__(status, message, headers)
        self.code, self.message, self.field = code, message, field


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Serialise a value as JSON, with null for NaN and infinity."""
    return Response(to_json(value, inf_nan_mode="null"), status, headers, JSON)


def error_response(
    status: int, code: str, message: str, field: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    return json_response({"error": {"code": code, "message": message, "field": field}}, status, headers)


def field_of(place: Sequence[Any]) -> str | None:
    """Return the dotted path of a field, such as queries.0.head, without the union tags of Pydantic."""
    parts = [str(part) for part in place[1:] if part not in (NAME, NEW)]
    return ".".join(parts)[:200] or None


def add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return error_response(error.status_code, error.code, error.message, error.field, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        message = MESSAGES.get(first["type"], str(first["msg"]).removeprefix("Value error, "))
        return error_response(422, "invalid", message.rstrip(".") + ".", field_of(first["loc"]))

    @app.exception_handler(StarletteError)
    async def http_error(_: Request, error: StarletteError) -> Response:
        code = PLAIN_CODES.get(error.status_code, "invalid")
        message = {404: "There is no such route: /openapi.json lists all routes."}.get(
            error.status_code, str(error.detail).rstrip(".") + "."
        )
        return error_response(error.status_code, code, message, headers=dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> Response:
        return error_response(500, "internal", "Internal server error: see the server's log.")
