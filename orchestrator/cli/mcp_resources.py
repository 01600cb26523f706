"""Resources of `serve-mcp`: drawings of the graphs, and the page and the drawing of each run that clients started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InvalidValue, RunUnknown
from orchestrator.render import to_svg
from orchestrator.tasks import away

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.types import (
        ListResourcesResult,
        ListResourceTemplatesResult,
        PaginatedRequestParams,
        ReadResourceRequestParams,
        ReadResourceResult,
    )

    from orchestrator.executor import Executor, Run
    from orchestrator.graph.model import GraphDefinition

SCHEME = "orchestrator://"
HTML, SVG = "text/html", "image/svg+xml"
MOST_CHARACTERS = 16_000_000
"""Maximum number of characters of a page or drawing."""
_OF_RUNS = {"page.html": (HTML, "The run as one page"), "drawing.svg": (SVG, "The graph with the path of the run")}
_RUNS = 50
"""Runs of a page of the list."""


def page_of(run_id: str) -> str:
    """Return the URI of the page of a run."""
    return f"{SCHEME}runs/{run_id}/page.html"


class Resources:
    """Lists and reads the resources.

    Args:
        executor: has the runs.
        graphs: the offered graphs, by the names of their tools.
        known: returns a run that a client started.
        labels: the labels of such runs.
    """

    def __init__(
        self,
        executor: Executor,
        graphs: Mapping[str, GraphDefinition[Any]],
        known: Callable[[object], Awaitable[Run]],
        labels: Mapping[str, str],
    ) -> None:
        self._executor, self._graphs, self._known, self._labels = executor, graphs, known, labels

    async def list(self, ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListResourcesResult:
        """List the drawings of the graphs, and the pages and drawings of the newest runs."""
        from mcp.types import ListResourcesResult, Resource

        cursor = params.cursor if params is not None else None
        found = (
            []
            if cursor
            else [
                Resource(
                    uri=f"{SCHEME}graphs/{name}.svg", name=f"{name}.svg", mime_type=SVG, description=f"The graph {name}"
                )
                for name in self._graphs
            ]
        )
        page = await self._executor.runs(labels=self._labels, after=cursor, limit=_RUNS)
        for info in page.runs:
            found += [
                Resource(
                    uri=f"{SCHEME}runs/{info.run_id}/{part}",
                    name=f"{info.run_id}/{part}",
                    mime_type=kind,
                    description=f"{about} of {info.graph}, {info.status}",
                )
                for part, (kind, about) in _OF_RUNS.items()
            ]
        return ListResourcesResult(resources=found, next_cursor=page.cursor)

    async def templates(
        self, ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """List the forms of the URIs of all runs."""
        from mcp.types import ListResourceTemplatesResult, ResourceTemplate

        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=f"{SCHEME}runs/{{run_id}}/{part}", name=part, mime_type=kind, description=f"{about}."
                )
                for part, (kind, about) in _OF_RUNS.items()
            ]
        )

    async def read(self, ctx: ServerRequestContext[Any], params: ReadResourceRequestParams) -> ReadResourceResult:
        """Return a page or drawing.

        Raises:
            MCPError: there is no such resource, or it is too large.
        """
        from mcp.types import ReadResourceResult, TextResourceContents

        kind, made = await self._made(params.uri)
        if len(made) > MOST_CHARACTERS:
            raise _not_found(
                f"{params.uri} has {len(made):,} characters, and the limit is {MOST_CHARACTERS:,}: "
                "`orchestrator render` writes it to a file"
            )
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=kind, text=made)])

    async def _made(self, uri: str) -> tuple[str, str]:
        place, *rest = uri.removeprefix(SCHEME).split("/") if uri.startswith(SCHEME) else [""]
        if place == "graphs" and len(rest) == 1 and (graph := self._graphs.get(rest[0].removesuffix(".svg"))):
            return SVG, await away(lambda: to_svg(graph))
        if place == "runs" and len(rest) == 2 and rest[1] in _OF_RUNS:
            try:
                run = await self._known(rest[0])
            except (RunUnknown, InvalidValue):
                raise _not_found(f"there is no run {rest[0]!r} that a client started") from None
            return _OF_RUNS[rest[1]][0], await away(run.to_html if rest[1] == "page.html" else run.to_svg)
        raise _not_found(
            f"there is no resource {uri!r}; there are {SCHEME}graphs/NAME.svg, "
            + " and ".join(f"{SCHEME}runs/ID/{part}" for part in _OF_RUNS)
        )


def _not_found(why: str) -> Exception:
    from mcp.shared.exceptions import MCPError
    from mcp.types import INVALID_PARAMS

    return MCPError(code=INVALID_PARAMS, message=why)
