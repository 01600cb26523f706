"""The OpenAPI 3.1 document of the table of routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from orchestrator import __version__
from orchestrator.errors import DISTRIBUTION
from orchestrator.web.documents import ProblemDocument
from orchestrator.web.endpoint import Endpoint
from orchestrator.web.problems import MEDIA
from orchestrator.web.streams import MEDIA as STREAM

REF = "#/components/schemas/{model}"
OPENAPI = "/api/openapi.json"
_PHRASES = {
    204: "The run has ended, and no further events come.",
    400: "The request names no valid host.",
    401: "The token is missing.",
    403: "Refused.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "It does not fit what the run is now.",
    413: "The body is too long.",
    415: "The body is not JSON.",
    422: "The query or the body does not fit.",
    500: "A fault of the server.",
    503: "The store cannot be used now, or there are too many streams.",
}
_LAST: Mapping[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "integer", "minimum": 0},
    "description": "The number of the last record that the client has; it counts before `after`.",
}


def document(routes: Sequence[Endpoint], *, server: str = "", token: bool = False) -> dict[str, Any]:
    """The OpenAPI document of some routes.

    Args:
        routes: the routes.
        server: the path before theirs.
        token: whether requests must bring a token.
    """
    models: dict[type[BaseModel], Any] = {ProblemDocument: "serialization"}
    for route in routes:
        models.update(dict.fromkeys(filter(None, (route.answer, route.streams)), "serialization"))
        models.update(dict.fromkeys(filter(None, (route.query, route.body)), "validation"))
    names, schemas = models_json_schema([*models.items()], ref_template=REF)
    refs: dict[type[BaseModel], Any] = {model: names[model, mode] for model, mode in models.items()}
    components: dict[str, Any] = schemas["$defs"]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        query = components[_name(refs[route.query])]
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, query, refs)
    for name in {_name(refs[route.query]) for route in routes}:
        del components[name]  # queries are parameters
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": DISTRIBUTION, "version": __version__, "summary": "Runs of agent graphs."},
        "servers": [{"url": server or "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def _name(ref: Mapping[str, str]) -> str:
    return ref["$ref"].rpartition("/")[2]


def _operation(route: Endpoint, query: Mapping[str, Any], refs: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.action,
        "summary": route.summary,
        "tags": [route.path.split("/")[2]],
        "parameters": [*_in_path(route), *_in_query(query)],
        "responses": {str(route.status): _success(route, refs)},
    }
    if route.streams is not None and route.answer is None:
        found["responses"]["204"] = {"description": _PHRASES[204]}
        found["parameters"].append(_LAST)
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": refs[route.body]}}}
    for status in route.statuses():
        content = {MEDIA: {"schema": refs[ProblemDocument]}}
        found["responses"][str(status)] = {"description": _PHRASES[status], "content": content}
    return found


def _success(route: Endpoint, refs: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    schema = refs[route.answer] if route.answer is not None else {"type": "string"}
    content: dict[str, Any] = {route.media: {"schema": schema}}
    if route.streams is not None:
        content[STREAM] = {"schema": _event(refs[route.streams])}
    found: dict[str, Any] = {"description": route.summary, "content": content}
    if route.headers:
        found["headers"] = {name: {"schema": {"type": "string"}} for name in route.headers}
    return found


def _event(data: Mapping[str, str]) -> dict[str, Any]:
    """An event of a stream. OpenAPI 3.1 has no words for streams: its schema is taken for that of each event."""
    return {
        "type": "object",
        "description": "Of each event of the stream.",
        "properties": {
            "id": {"type": "string", "description": "The number of the record."},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
        "required": ["data"],
    }


def _in_path(route: Endpoint) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 200}}
        for name in names
    ]


def _in_query(query: Mapping[str, Any]) -> list[dict[str, Any]]:
    required = query.get("required", ())
    found = []
    for name, schema in query.get("properties", {}).items():
        said = {key: value for key, value in schema.items() if key not in ("title", "description")}
        parameter = {"name": name, "in": "query", "required": name in required, "schema": said}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found
