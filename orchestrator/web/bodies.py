"""Queries and bodies: a request's is read up to a size, and a large answer goes to the server bit by bit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, get_origin

import anyio
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.responses import Response, StreamingResponse

from orchestrator.tasks import away
from orchestrator.web.guard import check_json
from orchestrator.web.problems import HttpProblem, fields_problem, invalid
from orchestrator.web.requests import Body, Query

if TYPE_CHECKING:
    from starlette.requests import Request

QueryT = TypeVar("QueryT", bound=Query)
BodyT = TypeVar("BodyT", bound=Body)
LONGEST = 1 << 20
"""Bytes of a body."""
_DROPPED = 8 * LONGEST
"""Bytes of a body that are read to refuse it."""
_PARAMETERS = 100
"""Parameters of a query."""


def query_of(request: Request, model: type[QueryT]) -> QueryT:
    """The query of a request.

    Raises:
        HttpProblem: it does not fit.
    """
    pairs = request.query_params.multi_items()
    if len(pairs) > _PARAMETERS:
        raise fields_problem([{"field": "", "message": f"it has more than {_PARAMETERS} parameters"}], "query")
    every: dict[str, list[str]] = {}
    for name, value in pairs:
        every.setdefault(name, []).append(value)
    given: dict[str, object] = {}
    for name, values in every.items():
        if name in model.model_fields and get_origin(model.model_fields[name].annotation) is list:
            given[name] = values
        elif len(values) > 1:
            raise fields_problem([{"field": name, "message": "it is given more than once"}], "query")
        else:
            given[name] = values[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise invalid(error, "query") from None


async def body_of(request: Request, model: type[BodyT], *, patience: float) -> BodyT:
    """The body of a request.

    Args:
        request: the request.
        model: what the body must fit.
        patience: seconds in which it must have come.

    Raises:
        HttpProblem: it is no JSON, too long, too slow, or does not fit.
    """
    check_json(request.headers)
    data: bytes | None = None
    with anyio.move_on_after(patience):
        data = await _read(request)
    if data is None:
        detail = f"the body did not come within {patience:g} seconds"
        raise HttpProblem(408, "body-too-slow", detail, headers={"Connection": "close"})
    text = data or b"{}"
    return await away(lambda: _fitting(text, model), text)


def _fitting(data: bytes, model: type[BodyT]) -> BodyT:
    try:
        found = from_json(data, allow_inf_nan=False, cache_strings=False)
        json.loads(data, object_pairs_hook=_once)
        return model.model_validate(found)
    except ValidationError as error:
        raise invalid(error, "body") from None
    except ValueError as error:
        raise HttpProblem(422, "invalid-json", f"the body is not JSON: {error}") from None


def _once(pairs: list[tuple[str, object]]) -> None:
    """Refuse a name that stands twice in an object: of two readers, one could see the first and one the last.

    Raises:
        ValueError: there is one.
    """
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name[:100]!r} occurs twice in an object")
        seen.add(name)


async def _read(request: Request) -> bytes:
    """The bytes of a body. They are counted: what Content-Length says need not be true.

    A body that is too long is read to its end and dropped, because many clients read no answer before. One that is far
    too long is not.
    """
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 18 or int(said) > _DROPPED:
        raise _too_long(hangs_up=True)
    found, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > _DROPPED:
            raise _too_long(hangs_up=True)
        if length <= LONGEST:
            found += chunk
    if length > LONGEST:
        raise _too_long(hangs_up=False)
    return bytes(found)


def _too_long(*, hangs_up: bool) -> HttpProblem:
    headers = {"Connection": "close"} if hangs_up else None
    return HttpProblem(413, "body-too-long", f"the body has more than {LONGEST:,} bytes, the limit", headers=headers)


def response_of(
    parts: Sequence[bytes], media: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer.

    Args:
        parts: its body.
        media: its media type.
        status: its status.
        headers: further headers.
    """
    if len(parts) == 1:
        return Response(parts[0], status, headers, media)

    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return StreamingResponse(body(), status, {**(headers or {}), "Content-Length": str(sum(map(len, parts)))}, media)
