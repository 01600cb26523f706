"""The table of routes is the API: its OpenAPI document, its page in the documentation, and what is imported for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import install_command
from orchestrator.web.routes import ROUTES, openapi_document, routes
from tests.web.api import api

PAGE = (Path(__file__).parents[2] / "docs" / "web_api.md").read_text(encoding="utf-8")
DOCUMENT = openapi_document(ROUTES)


def row(route: Any) -> str:
    """A route as the page lists it."""
    said = [f"`?{'&'.join(route.query.model_fields)}`"] if route.query.model_fields else []
    if route.body is not None:
        said.append(f"`{{{', '.join(route.body.model_fields)}}}`")
    return f"| `{route.method} {route.path}` | `{route.action}` | {' '.join(said)} | {route.summary} |"


def test_every_route_is_on_the_page_and_no_other_one() -> None:
    listed = re.findall(r"^\| `(?:GET|POST|DELETE) /api.*$", PAGE, flags=re.M)
    assert listed == [row(route) for route in ROUTES]


def test_every_route_is_described_with_all_of_its_answers() -> None:
    assert {(method.upper(), path) for path, found in DOCUMENT["paths"].items() for method in found} == {
        (route.method, route.path) for route in ROUTES
    }
    for route in ROUTES:
        found = DOCUMENT["paths"][route.path][route.method.lower()]
        assert found["operationId"] == route.action
        assert {str(route.status), *map(str, route.statuses())} <= found["responses"].keys()
        assert [one["name"] for one in found["parameters"] if one["in"] == "query"] == [*route.query.model_fields]


def test_actions_have_one_route_each() -> None:
    assert len({route.action for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_a_server_that_only_reads_has_the_routes_that_change_nothing() -> None:
    left = {route.action for route in routes(read_only=True)}
    assert {route.action for route in ROUTES} - left == {
        "start_run", "delete_run", "answer_question", "resume_run", "pause_run", "cancel_run", "fork_run",
        "preview_fork", "replay_run", "send_event", "try_graph", "replay_runs", "stop_replays", "save_graph",
    }  # fmt: skip


def test_every_reference_leads_to_a_model() -> None:
    refs = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(DOCUMENT)))
    assert refs <= DOCUMENT["components"]["schemas"].keys()
    assert DOCUMENT["openapi"].startswith("3.1")


def test_the_server_serves_the_document() -> None:
    with api(settings={"token": "a-token-that-is-long-enough"}) as found:
        served = found.get("openapi.json", headers={"Authorization": "Bearer a-token-that-is-long-enough"})
        assert served["paths"] == DOCUMENT["paths"]
        assert served["security"] == [{"token": []}]


@pytest.mark.parametrize(
    "code", ["import orchestrator.web", "import orchestrator.cli.app", "from orchestrator.web import app"]
)
def test_nothing_of_it_is_imported_before_it_is_used(code: str) -> None:
    told = f"import sys; {code}; print([m for m in ('starlette', 'uvicorn', 'pydantic') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True)
    assert found.stdout.strip() in ("[]", "['pydantic']")


@pytest.mark.full
def test_a_missing_package_is_one_line() -> None:
    code = (
        "import sys; sys.modules['starlette'] = None; from orchestrator import Executor, web\n"
        "try: web.app(Executor())\nexcept ImportError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == f"the web API needs other packages: {install_command('web')}"
