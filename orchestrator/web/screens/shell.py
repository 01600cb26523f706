"""Parts shared by all screens: templates, files, headers, and the response to a page that is requested again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from orchestrator import __version__
from orchestrator.json import digest, encoded
from orchestrator.render.html.page import embedded
from orchestrator.tasks import away
from orchestrator.values import utc
from orchestrator.visible import shown
from orchestrator.web.documents import response_of

if TYPE_CHECKING:
    from jinja2 import Environment

    from orchestrator.web.endpoint import Call
    from orchestrator.web.problems import HttpProblem

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the screens: their own files, and nothing inline."""
HEADERS: Mapping[str, str] = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "Vary": "Accept"}


@cache
def templates() -> Environment:
    """Return the templates. They escape all values as text."""

    found = Environment(
        loader=PackageLoader("orchestrator.web.screens"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"sort_keys": False}  # arguments keep their order
    found.filters["visible"] = lambda text: shown(str(text))
    found.filters["embedded"] = lambda value: Markup(embedded(value))
    return found


async def page(call: Call[Any, Any], name: str, data: Mapping[str, object], *, root: str, version: object) -> Response:
    """Return a screen as a response; 304 without a body if the browser has this version.

    Args:
        call: the request.
        name: the screen's name, also of its template and script.
        data: the values for the template.
        root: the path prefix of the routes.
        version: plain JSON that changes with the page, except for ages.
    """
    read_only = call.settings.read_only
    tag = await away(lambda: f'"{digest([version, read_only, call.settings.sources, root, _release()])[:24]}"', version)
    headers = {**HEADERS, "ETag": tag}
    if call.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    template = templates().get_template(f"{name}.html")
    given = {
        "screen": name,
        "root": root,
        "read_only": read_only,
        "sources": call.settings.sources,
        "logs_out": call.settings.token is not None,
        "static": lambda file: f"{root}/static/{file}",
        **data,
    }
    parts = await away(lambda: encoded(template.generate(given)), data)
    return response_of(parts, "text/html", headers=headers)


def root_of(call: Call[Any, Any]) -> str:
    """Return the path prefix of the routes."""
    return f"{call.request.scope.get('root_path', '')}{call.settings.prefix}"


def problem_page(problem: HttpProblem, *, root: str, read_only: bool) -> Response:
    """Return a problem as a page for people.

    Args:
        problem: the problem.
        root: the path prefix of the routes.
        read_only: whether the server is read-only.
    """
    document = problem.document()
    text = (
        templates()
        .get_template("problem.html")
        .render(
            screen="problem",
            root=root,
            read_only=read_only,
            logs_out=False,
            static=lambda file: f"{root}/static/{file}",
            title=document["title"],
            detail=document["detail"],
            open_questions="",
        )
    )
    return HTMLResponse(text, problem.status, headers={**HEADERS, **problem.headers})


@cache
def _release() -> str:
    return __version__


def key_of(text: str) -> str:
    """Return a short name for an element, from an id with any characters."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def lasting(seconds: float) -> str:
    """Return a duration for a row."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def money(amount: float) -> str:
    """Return a cost as text."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.4f}" if abs(amount) >= 0.0001 else f"{amount:.1g}"


def day_of(moment: float | None, *, last: bool = False) -> str:
    """Return a time as a day in UTC for a form; empty for None.

    Args:
        moment: Unix seconds.
        last: whether it is the exclusive end of a range.
    """
    return "" if moment is None else utc(moment - last * 0.001).date().isoformat()
