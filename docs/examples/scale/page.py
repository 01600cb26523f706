"""The page of the runs, behind a login: `uvicorn page:app`.

It takes orders, shows runs and takes answers. Workers drive what was ordered; a run that is
answered here goes on here. Requests that pages of other sites send are refused.

Environment variables:
    ORCHESTRATOR_STORE: the store.
    PAGE_USERS: names and passwords, `ann:secret,bob:other`.
    PAGE_OPERATORS: the names of those who may change runs and answer questions, `ann`. All others only read.
    ORCHESTRATOR_RESTORED_AT: when the store was restored from a backup, if it was, as workers read it.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
from agents import app as agents
from agents import orders
from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from orchestrator import web
from orchestrator.errors import InvalidValue, RunExists, StoreError
from orchestrator.stores import RunInfo

USERS = {name.strip(): word for name, _, word in (one.partition(":") for one in os.environ["PAGE_USERS"].split(","))}
if not all(map(all, USERS.items())):
    raise ValueError("set names and passwords: PAGE_USERS=ann:secret,bob:other")
OPERATORS = [name.strip() for name in os.environ.get("PAGE_OPERATORS", "").split(",")]
READING = ("align_", "compare_", "describe_", "diff_", "draw_", "explain_", "list_", "show_", "stream_", "view_")
"""Beginnings of the names of actions that change nothing."""
OPEN = ("/healthz", "/readyz")
"""Paths that need no login: they show no data of runs."""

executor = agents.executor(
    os.environ["ORCHESTRATOR_STORE"], restored_at=os.environ.get("ORCHESTRATOR_RESTORED_AT") or None
)


class Wanted(BaseModel):
    """What is posted to /orders."""

    text: Annotated[str, Field(pattern=r"\S", max_length=20_000)]
    run_id: str | None = None
    """The same id and text mean the same order, so a request can be repeated."""


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """Open the executor while the server runs."""
    async with executor:
        yield


def authorize(request: Request, action: str, run: RunInfo | None) -> str | None:
    """Return the name under which an action is journaled; None if this user may not do it."""
    name = str(request.user.display_name)
    return name if action.startswith(READING) or name in OPERATORS else None


async def order(request: Request) -> Response:
    """Enqueue a run for the workers."""
    if authorize(request, "start_run", None) is None:
        return PlainTextResponse("You may not order.", 403)
    labels = {"user": str(request.user.display_name)}
    try:
        wanted = Wanted.model_validate_json(await request.body())
        run_id = await executor.enqueue(orders, wanted.text, run_id=wanted.run_id, labels=labels)
    except ValidationError as error:
        faults = [" ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors()]
        return PlainTextResponse(f"""Send JSON, {{"text": "3 kettles"}}: {"; ".join(faults)}.""", 422)
    except InvalidValue as error:
        return PlainTextResponse(str(error), 422)
    except RunExists as error:
        return PlainTextResponse(str(error), 409)
    return JSONResponse({"run_id": run_id}, 201)


async def healthy(request: Request) -> Response:
    """Answer while the event loop works."""
    return PlainTextResponse("ok")


async def ready(request: Request) -> Response:
    """Answer 200 if the store does."""
    try:
        with anyio.fail_after(5):
            await executor.runs(limit=1)
    except (StoreError, TimeoutError) as error:
        return PlainTextResponse(f"the store does not answer: {type(error).__name__}", 503)
    return PlainTextResponse("ok")


class Login(AuthenticationBackend):
    """HTTP Basic authentication. Replace it by the login of your organization."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        """Return the user that the request names, if the password is right."""
        if conn.url.path in OPEN:
            return None
        try:
            _, _, given = conn.headers.get("Authorization", "").partition(" ")
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            raise AuthenticationError("Log in.") from None
        wanted = USERS.get(name, "")
        if not wanted or not secrets.compare_digest(password.encode(), wanted.encode()):
            raise AuthenticationError("Log in.")
        return AuthCredentials(["user"]), SimpleUser(name)


def ask_to_log_in(conn: HTTPConnection, error: AuthenticationError) -> Response:
    """Answer 401, after which browsers ask for name and password."""
    return PlainTextResponse(str(error), 401, {"WWW-Authenticate": 'Basic realm="agents", charset="UTF-8"'})


app = Starlette(
    routes=[
        Route("/healthz", healthy),
        Route("/readyz", ready),
        Route("/orders", order, methods=["POST"]),
        Mount("/", web.app(executor, authorize=authorize)),
    ],
    middleware=[
        Middleware(web.same_origin),
        Middleware(AuthenticationMiddleware, backend=Login(), on_error=ask_to_log_in),
    ],
    lifespan=lifespan,
)
