"""The HTTP API of runs: lists, details, live events, questions and commands, as an ASGI application.

    from orchestrator import Executor, web

    executor = Executor("sqlite:///runs.db", graphs=[graph], model=model, streams="always")
    api = web.app(executor)                      # Starlette; mount it, or serve it with uvicorn

`orchestrator serve` runs the same application in a server. Needs the extra `web`; importing this package does not.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import install_command

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp

    from orchestrator.executor import Executor
    from orchestrator.graph.limits import Limits
    from orchestrator.web.principals import Authorize
    from orchestrator.web.settings import Settings

__all__ = ["app", "same_origin"]

NEEDED = f"the web API needs other packages: {install_command('web')}"


def app(
    executor: Executor,
    *,
    read_only: bool = False,
    authorize: Authorize | None = None,
    prefix: str = "",
    save_graphs: str | Path | None = None,
    limits: Limits | None = None,
    currency: str = "USD",
    sources: bool = False,
) -> Starlette:
    """Make the ASGI application of an executor, to mount in another one or to serve alone.

    The caller opens the executor, for example in the lifespan of the outer application. Without `authorize`, only
    requests whose host is this machine's loopback interface are answered, because everybody who reaches the API can
    approve calls.

    Args:
        executor: the open executor. Only its graphs can be started.
        read_only: whether to leave out every route that changes something.
        authorize: called with (request, action, run) for each request, sync or async; `action` is a name from
            docs/web_api.md, `run` the run's row in the store, or None if the request does not concern a run. It returns
            a principal (a string, or an object with a `name`), whose name is journaled as `by`; None refuses the
            request with 403, or with 404 if it is about a run for which `show_run` is refused, too. It is called for
            each row of a list, and refused rows are left out.
        prefix: a path before all routes, such as `/agents`; not needed for a mounted application.
        save_graphs: the folder into which the page saves graphs, which become graphs of the executor, also after a
            restart; None: the page cannot save.
        limits: the highest limits that a request may set, for the fields that are set. A request may always lower the
            limits of a graph or run. With `authorize`, a principal that may `raise_limits` is not bound by them.
        currency: the currency of the prices of your models, which pages and `/api/stats` name beside costs.
        sources: whether the source of functions behind nodes is shown, to principals that may `show_source`.

    Returns:
        The application.

    Raises:
        ImportError: the extra `web` is not installed.
        ValueError: `prefix` is not a path, or the folder `save_graphs` does not exist.
    """
    from orchestrator.web.settings import LOOPBACK, Settings

    hosts = LOOPBACK if authorize is None else None
    folder = None if save_graphs is None else Path(save_graphs)
    settings = Settings(
        read_only=read_only,
        authorize=authorize,
        prefix=prefix,
        hosts=hosts,
        save_graphs=folder,
        limits=limits,
        currency=currency,
        sources=sources,
    )
    return configured(executor, settings)


def configured(executor: Executor, settings: Settings) -> Starlette:
    """Make the application with all settings of `serve`.

    Raises:
        ImportError: the extra `web` is not installed.
    """
    _check_installed()
    from orchestrator.web.application import make

    return make(executor, settings)


def same_origin(app: ASGIApp, origins: Collection[str] = ()) -> ASGIApp:
    """Return an application for your own routes that refuses requests of pages of other sites.

    A browser sends its login with a request, also when a page of another site makes it. The application of
    `orchestrator.web.app` refuses such requests to its own routes only. This is middleware for the others:
    `Starlette(middleware=[Middleware(web.same_origin)])`, or `fastapi_app.add_middleware(web.same_origin)`.

    It refuses, with 403 and `application/problem+json`, a request or WebSocket whose `Origin` is not this server, as
    `Host` names it, and a request to change something whose `Sec-Fetch-Site` is another site. Programs that are not
    browsers send neither header, and their requests pass.

    Args:
        app: the application.
        origins: origins of further pages that may send requests, such as `https://shop.example`. Their scripts may read
            answers if Starlette's `CORSMiddleware` allows it.

    Returns:
        The application behind the checks.

    Raises:
        ImportError: the extra `web` is not installed.
        ValueError: an origin is not one.
    """
    _check_installed()
    from orchestrator.web.guard import SameOrigin, origins_of

    return SameOrigin(app, origins_of(origins))


def _check_installed() -> None:
    try:
        import starlette  # noqa: F401  looked for here, so that the message names the extra
    except ImportError:
        raise ImportError(NEEDED) from None
