"""The Starlette application of the table of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles

from orchestrator.errors import InvalidValue, OrchestratorError, RunUnknown
from orchestrator.executor.run_status import with_status
from orchestrator.executor.start import check_run_id
from orchestrator.json import encoded
from orchestrator.tasks import away, works_for
from orchestrator.web import documents, principals, problems, requests
from orchestrator.web.alignments import Alignments
from orchestrator.web.compose.checks import Texts
from orchestrator.web.compose.saved import SavedGraphs
from orchestrator.web.compose.scratch import Scratch, of_own
from orchestrator.web.endpoint import Call, Endpoint, ReplayBatches, Service
from orchestrator.web.guard import Guard
from orchestrator.web.routes import OPENAPI, TRIES, openapi_document, routes, routes_of_tries
from orchestrator.web.screens.pages import FOLDERS, SCREENS
from orchestrator.web.screens.run_feed import RunFeeds
from orchestrator.web.screens.shell import problem_page
from orchestrator.web.streams import OpenStreams

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.stores.base import RunInfo
    from orchestrator.web.settings import Settings


def make(executor: Executor, settings: Settings) -> Starlette:
    """Make the application."""
    texts = Texts(executor)
    scratch = None if settings.read_only else Scratch(executor)
    saved = None if settings.save_graphs is None else SavedGraphs(settings.save_graphs, executor, texts)
    streams, sessions = OpenStreams(settings.streams), principals.Sessions(settings.session)
    service = Service(
        executor, settings, streams, RunFeeds(executor), texts, Alignments(), ReplayBatches(), sessions, scratch, saved
    )
    offered = routes(read_only=settings.read_only)
    made = _routes(service, offered)
    made.append(Route(settings.prefix + OPENAPI, _described(service, offered), methods=["GET"]))
    if scratch is not None:
        of_tries = replace(settings, prefix="", scratch=True, refs=None, authorize=of_own(settings.authorize))
        feeds = RunFeeds(scratch.executor)
        inner = Service(scratch.executor, of_tries, streams, feeds, texts, Alignments(), ReplayBatches(), sessions)
        tries = Router(_routes(inner, routes_of_tries()), redirect_slashes=False)
        made.append(Mount(settings.prefix + TRIES, tries))
    app = Starlette(
        routes=made,
        middleware=[Middleware(Guard, settings=settings, sessions=sessions)],
        exception_handlers={HTTPException: _no_route(settings)},
    )
    app.router.redirect_slashes = False
    app.state.streams = service.streams
    return app


def _routes(service: Service, offered: Sequence[Endpoint]) -> list[BaseRoute]:
    """Return the routes of some endpoints, and of the screens and their files."""
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in offered:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    prefix = service.settings.prefix
    made: list[BaseRoute] = [
        Route(prefix + path, _dispatcher(service, endpoints), methods=[one.method for one in endpoints])
        for path, endpoints in by_path.items()
    ]
    made += [Route(prefix + one.path, _dispatcher(service, [one]), methods=["GET"]) for one in SCREENS]
    for path, package, folder in FOLDERS:
        made.append(Mount(f"{prefix}/static{path}", StaticFiles(packages=[(package, folder)])))
    made.append(Route(prefix + "/", _entry(service.settings), methods=["GET"]))
    return made


def _dispatcher(service: Service, endpoints: Sequence[Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of all methods of a path, so that an error for another method lists them all."""
    by_method = {one.method: one for one in endpoints}

    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await respond(service, by_method[method], request)  # type: ignore[index]

    return handle


async def respond(service: Service, endpoint: Endpoint, request: Request) -> Response:
    """Return the response to a request, also if an error occurs."""
    try:
        try:
            call = await _call(service, endpoint, request)
            trace = requests.trace_context(request.headers) if endpoint.writes else {}
            with service.executor.traced(trace):
                answered = await endpoint.handler(call)
            return await _response(service, endpoint, request, answered)
        except ExceptionGroup as group:
            raise _alone(group) from None
    except problems.HttpProblem as problem:
        found = problem
    except OrchestratorError as error:
        found = problems.problem_of(error)
    except ClientDisconnect:
        return Response(status_code=400)  # there is no client to read it
    except Exception:
        found = problems.fault()
    page = endpoint.media == "text/html"
    return await away(
        lambda: _refusal(service.settings, request, found, page=page), found.detail, found.headers, found.members
    )


def _refusal(settings: Settings, request: Request, problem: problems.HttpProblem, *, page: bool) -> Response:
    """Return a problem as a response: a page if a browser requested a page."""
    if page and request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", ""):
        return problem_page(problem, root=f"{_root(request)}{settings.prefix}", read_only=settings.read_only)
    return problems.answer(problem)


def _alone(group: ExceptionGroup[Exception]) -> Exception:
    """Return the only error of a group of tasks, or the group if it has several."""
    error: Exception = group
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _call(service: Service, endpoint: Endpoint, request: Request) -> Call[requests.NoQuery, None]:
    """Check a request: first the permission for it, then its query and body.

    Raises:
        HttpProblem: the request is refused or invalid.
        RunUnknown: there is no such run.
    """
    row: RunInfo | None = None
    request.state.act = principals.Act()
    store, authorize = service.executor.store, service.settings.authorize
    if endpoint.of_run:
        row = with_status(await store.info(_run_id(request)))
    asked = row if row is None or authorize is None else await principals.labelled(store, row)
    principal = await principals.name_of(authorize, request, endpoint.action, asked)
    if principal is None:
        raise await principals.refused_for(authorize, request, endpoint.action, asked)
    about = f"action {endpoint.action}" if row is None else f"run {row.run_id}"
    works_for(*([f"user {principal}"] if principal else []), about)
    query = requests.query_of(request, endpoint.query)
    body = (
        None
        if endpoint.body is None
        else await requests.body_of(request, endpoint.body, patience=service.settings.patience)
    )
    return Call(service, request, endpoint.action, query, body, row, principal)  # type: ignore[arg-type]


def _run_id(request: Request) -> str:
    """Return the run id in the URL, if it is valid.

    Raises:
        RunUnknown: the id is not valid.
    """
    given = str(request.path_params["run_id"])
    try:
        return check_run_id(given)
    except InvalidValue:
        raise RunUnknown(given) from None


async def _response(
    service: Service, endpoint: Endpoint, request: Request, answer: documents.Document | ASGIApp
) -> Response:
    if not isinstance(answer, documents.Document):
        return answer  # type: ignore[return-value]  # Starlette calls it as an ASGI application
    headers = {}
    if "Location" in endpoint.headers:
        root = f"{_root(request)}{service.settings.prefix}{endpoint.below}"
        headers["Location"] = f"{root}/api/runs/{quote(vars(answer)['run_id'])}"
    parts = await away(lambda: encoded(documents.json_of(answer)), answer)
    return documents.response_of(parts, endpoint.media, endpoint.status, headers)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _described(service: Service, offered: Sequence[Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    settings = service.settings

    async def described(request: Request) -> Response:
        if await principals.name_of(settings.authorize, request, "describe_api", None) is None:
            return problems.answer(principals.refused("describe_api"))
        server = f"{_root(request)}{settings.prefix}"
        made = openapi_document(offered, server=server, token=settings.token is not None)
        return Response(documents.JSON.encode(made), media_type="application/json")

    return described


def _entry(settings: Settings) -> Callable[[Request], Awaitable[Response]]:
    async def entry(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""  # the filters of the list
        return RedirectResponse(f"{_root(request)}{settings.prefix}/runs{query}", status_code=302)

    return entry


def _no_route(settings: Settings) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{request.method} {request.url.path}"
        if error.status_code == 405:
            allowed = dict(error.headers or {})
            detail = f"this address has {allowed.get('Allow', 'no such method')}, and not {what}"
            return problems.answer(problems.HttpProblem(405, "method-not-allowed", detail, headers=allowed))
        problem = problems.HttpProblem(error.status_code, "not-found", f"there is no such address: {what}")
        api = request.url.path.startswith(f"{_root(request)}{settings.prefix}/api/")
        return _refusal(settings, request, problem, page=not api)

    return no_route
