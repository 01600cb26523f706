"""The table of routes is the API: its OpenAPI document, its page in the documentation, and what is imported for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from orchestrator.errors import install_command
from orchestrator.web.problems import MEDIA
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
        "start_run", "delete_run", "answer_question", "archive_run", "resume_run", "pause_run", "cancel_run",
        "fork_run", "preview_fork", "replay_run", "send_event", "try_graph", "replay_runs", "stop_replays",
        "save_graph", "write_note", "delete_note",
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


# -- for programs that read the document --------------------------------------------------------------------------


def test_the_document_is_valid() -> None:
    faults = [
        f"{'/'.join(map(str, one.path))}: {one.message}" for one in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()
    ]
    assert faults == []


def test_models_have_names_that_generated_code_can_have() -> None:
    """A name with a module in it, or a title that two models share, costs a generated client its operations."""
    schemas = DOCUMENT["components"]["schemas"]
    assert [name for name in schemas if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)] == []
    assert {name: schema["title"] for name, schema in schemas.items()} == {name: name for name in schemas}
    assert len({name.lower() for name in schemas}) == len(schemas)


def bounds(schema: Any) -> set[str]:
    """The keys of all bounds in a schema."""
    if isinstance(schema, dict):
        return {*schema.keys() & BOUNDS} | {key for part in schema.values() for key in bounds(part)}
    return {key for part in schema for key in bounds(part)} if isinstance(schema, list) else set()


BOUNDS = {"maxLength", "maximum", "maxItems", "maxProperties", "pattern", "enum", "const", "minimum", "minLength"}
FREE = {
    # Any JSON, within the bytes of a body.
    "StartBody.input", "TryBody.input", "SendBody.data", "ReplayBody.result", "ReplayBody.update", "ForkBody.update",
    "ForkBody.result", "ChangedRequestBody.options", "AnswerBody.value", "ChangedAnswer.value", "Approval.args",
    "Denial.reason",
    # Numbers without an upper bound; null is no limit.
    "LimitChanges.seconds", "LimitChanges.cost",
}  # fmt: skip


def test_every_field_of_a_body_has_its_bounds() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    bodies = [name for name, schema in schemas.items() if schema.get("additionalProperties") is False]
    assert len(bodies) > 15
    unbounded = {
        f"{name}.{field}"
        for name in bodies
        for field, schema in schemas[name]["properties"].items()
        if not bounds(schema) and not re.search("'type': 'boolean'|#/components", str(schema))
    }
    assert unbounded == FREE
    assert schemas["StartBody"]["properties"]["run_id"]["anyOf"][0]["maxLength"] == 200
    assert schemas["CheckBody"]["properties"]["text"]["maxLength"] == 250_000


def test_the_bounds_of_a_body_as_a_whole_are_described() -> None:
    found = DOCUMENT["paths"]["/api/runs"]["post"]
    assert found["requestBody"]["description"] == "At most 1,048,576 bytes."
    assert "1,048,576 bytes" in DOCUMENT["info"]["description"]


def test_an_answer_is_described_as_exactly_one_choice() -> None:
    schema = {**DOCUMENT["components"]["schemas"]["AnswerBody"], "components": DOCUMENT["components"]}
    said = {"question": "q", "digest": "d"}
    fits = Draft202012Validator(schema).is_valid
    assert [fits({**said, **one}) for one in ({"approve": True}, {"deny": {"reason": "no"}}, {"value": None})] == [
        True
    ] * 3
    assert [fits({**said, **one}) for one in ({}, {"approve": True, "value": 1}, {"by": "ann"})] == [False] * 3


def test_errors_are_described_with_their_fields() -> None:
    problem = DOCUMENT["components"]["schemas"]["ProblemDocument"]
    assert problem["required"] == ["type", "title", "status", "detail"]
    assert problem["properties"]["errors"]["items"] == {"$ref": "#/components/schemas/FieldFault"}
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert {"422", "500", "503"} <= errors.keys()
            for answer in errors.values():
                assert answer["content"] == {MEDIA: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
                assert "Entity" not in answer["description"]
