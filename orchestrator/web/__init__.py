"""The HTTP API of runs: lists, details, live events, questions and commands, as an ASGI application.

    from orchestrator import Executor, web

    executor = Executor("sqlite:///runs.db", graphs=[graph], model=model, streams="always")
    api = web.app(executor)                      # Starlette; mount it, or serve it with uvicorn

`orchestrator serve` runs the same application in a server. Needs the extra `web`; importing this package does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import install_command

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from orchestrator.executor import Executor
    from orchestrator.graph.limits import Limits
    from orchestrator.web.principals import Authorize
    from orchestrator.web.settings import Settings

__all__ = ["app"]

NEEDED = f"the web API needs other packages: {install_command('web')}"


def app(
    executor: Executor,
    *,
    read_only: bool = False,
    authorize: Authorize | None = None,
    prefix: str = "",
    save_graphs: str | Path | None = None,
    limits: Limits | None = None,
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
        read_only=read_only, authorize=authorize, prefix=prefix, hosts=hosts, save_graphs=folder, limits=limits
    )
    return configured(executor, settings)


def configured(executor: Executor, settings: Settings) -> Starlette:
    """Make the application with all settings of `serve`.

    Raises:
        ImportError: the extra `web` is not installed.
    """
    try:
        import starlette  # noqa: F401  looked for here, so that the message names the extra
    except ImportError:
        raise ImportError(NEEDED) from None
    from orchestrator.web.application import make

    return make(executor, settings)
