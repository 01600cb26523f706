"""The table of routes, and the OpenAPI 3.1 document of it. Routes and docs/web_api.md are made from it as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from orchestrator import __version__
from orchestrator.errors import DISTRIBUTION
from orchestrator.web import (
    comparisons,
    documents,
    evaluations,
    events,
    forks,
    graphs,
    notes,
    questions,
    replays,
    requests,
    run_commands,
    runs,
    sources,
    stats,
    streams,
    workers,
)
from orchestrator.web.compose import checks
from orchestrator.web.compose import handlers as compose
from orchestrator.web.documents import ProblemDocument
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.principals import cookies
from orchestrator.web.problems import MEDIA, TITLES
from orchestrator.web.streams import MEDIA as STREAM

_RUN = "/api/runs/{run_id}"
TRIES = "/try"
"""The path prefix of the routes of tries."""


async def _log_out(call: Call) -> documents.LoggedOut:
    """End the session of the browser that sent the request."""
    return documents.LoggedOut(ended=call.service.sessions.close(cookies(call.request.headers, call.settings.cookie)))


ROUTES: tuple[Endpoint, ...] = (
    Endpoint(
        "GET", "/api/runs", "list_runs", runs.listing, "List runs, the newest first.", documents.RunPage,
        query=requests.RunsQuery, streams=documents.RunsEvent,
    ),
    Endpoint(
        "POST", "/api/runs", "start_run", run_commands.start, "Start a run.", documents.RunResult,
        body=requests.StartBody, status=201, problems=(404, 409), headers=("Location",),
    ),
    Endpoint("GET", _RUN, "show_run", runs.show, "Show a run.", documents.RunDocument),
    Endpoint(
        "DELETE", _RUN, "delete_run", run_commands.delete, "Delete a run, for good.", documents.Deleted,
        query=requests.DeleteQuery, problems=(409,),
    ),
    Endpoint(
        "GET", f"{_RUN}/history", "list_steps", runs.history, "List the steps of a run.", documents.Steps,
        query=requests.PageQuery,
    ),
    Endpoint(
        "GET", f"{_RUN}/records", "list_records", runs.records, "List the records of a run.", documents.Records,
        query=requests.PageQuery,
    ),
    Endpoint(
        "GET", f"{_RUN}/transcript", "show_transcript", runs.transcript, "Show what was said in a run.",
        documents.TranscriptDocument, query=requests.TranscriptQuery,
    ),
    Endpoint(
        "GET", f"{_RUN}/state", "show_state", runs.state, "Show the state of a run, also as it was.",
        documents.StateDocument, query=requests.AtQuery,
    ),
    Endpoint(
        "GET", f"{_RUN}/drawing.svg", "draw_run", runs.drawing, "Draw a run over its graph.", None,
        query=requests.AtQuery, media=runs.SVG,
    ),
    Endpoint(
        "GET", f"{_RUN}/why", "explain_run", runs.why, "Explain a run, or one of its steps.", documents.WhyDocument,
        query=requests.WhyQuery,
    ),
    Endpoint(
        "GET", f"{_RUN}/source", "show_source", sources.show, "Show the source of the function behind a node.",
        sources.SourceDocument, query=sources.SourceQuery,
    ),
    Endpoint(
        "GET", f"{_RUN}/export", "export_run", runs.export, "Export a run as JSON Lines.", None,
        query=requests.ExportQuery, media=runs.LINES,
    ),
    Endpoint("GET", f"{_RUN}/page.html", "page_run", runs.page, "The run as one HTML file.", None, media="text/html"),
    Endpoint(
        "GET", f"{_RUN}/events", "stream_events", runs.event_stream, "Stream the events of a run until it ends.", None,
        query=requests.EventsQuery, media=streams.MEDIA, streams=documents.Event,
    ),
    Endpoint(
        "POST", f"{_RUN}/answer", "answer_question", run_commands.answer, "Answer a question of a run.",
        documents.RunResult, body=requests.AnswerBody, problems=(409,),
    ),
    Endpoint(
        "POST", f"{_RUN}/resume", "resume_run", run_commands.resume, "Resume a run.", documents.RunResult,
        body=requests.ResumeBody, problems=(409,),
    ),
    Endpoint(
        "POST", f"{_RUN}/pause", "pause_run", run_commands.pause, "Pause a run.", documents.RunResult,
        body=requests.StopBody, problems=(409,),
    ),
    Endpoint(
        "POST", f"{_RUN}/cancel", "cancel_run", run_commands.cancel, "Cancel a run.", documents.RunResult,
        body=requests.StopBody, problems=(409,),
    ),
    Endpoint(
        "POST", f"{_RUN}/archive", "archive_run", run_commands.archive, "Move the records of a run to the archive.",
        documents.ArchivedResult, problems=(409,),
    ),
    Endpoint(
        "POST", f"{_RUN}/fork", "fork_run", run_commands.fork, "Fork a run.", documents.RunResult,
        body=requests.ForkBody, status=201, problems=(409,), headers=("Location",),
    ),
    Endpoint(
        "GET", f"{_RUN}/fork/form", "show_fork_form", forks.form, "Show what a fork at a record can change.",
        forks.ForkForm, query=requests.AtQuery,
    ),
    Endpoint(
        "POST", f"{_RUN}/fork/preview", "preview_fork", forks.preview,
        "Tell what a fork would reuse, make again and ask about.", forks.ForkPreviewDocument,
        body=requests.ForkBody, problems=(409,),
    ),
    Endpoint(
        "GET", f"{_RUN}/family", "list_family", forks.family, "List the forks and replays around a run.",
        forks.Family,
    ),
    Endpoint(
        "POST", f"{_RUN}/replay", "replay_run", run_commands.replay, "Replay a run.", documents.ReplayDocument,
        body=requests.ReplayBody, status=201, problems=(409,), headers=("Location",),
    ),
    Endpoint(
        "POST", f"{_RUN}/send", "send_event", run_commands.send, "Send an event to a run.", documents.SentResult,
        body=requests.SendBody, problems=(409,),
    ),
    Endpoint(
        "GET", f"{_RUN}/awaited", "list_awaited", events.listing, "List the events that a run waits for and keeps.",
        events.RunEvents,
    ),
    Endpoint(
        "GET", f"{_RUN}/notes", "list_notes", notes.listing, "List the notes on a run.", notes.NoteList,
        query=notes.NotesQuery,
    ),
    Endpoint(
        "POST", f"{_RUN}/notes", "write_note", notes.write, "Write a note on a run, or on one of its steps.",
        notes.NoteDocument, body=notes.NoteBody, status=201,
    ),
    Endpoint(
        "DELETE", f"{_RUN}/notes/{{note}}", "delete_note", notes.delete, "Delete a note of a run.", notes.NoteDeleted,
    ),
    Endpoint(
        "GET", "/api/questions", "list_questions", questions.listing, "List the open questions of all runs.",
        documents.QuestionPage, query=requests.QuestionsQuery, streams=documents.QuestionEvent,
    ),
    Endpoint(
        "GET", "/api/workers", "list_workers", workers.listing, "List the workers and the parked runs.",
        documents.WorkerList, query=requests.WorkersQuery, streams=documents.WorkersEvent,
    ),
    Endpoint("GET", "/api/graphs", "list_graphs", graphs.listing, "List the graphs.", documents.GraphList),
    Endpoint(
        "GET", "/api/kinds", "list_kinds", compose.listing, "List what the text of a graph is made of.",
        compose.KindList,
    ),
    Endpoint(
        "POST", "/api/graphs/check", "check_graph", compose.check, "Check the text of a graph file.",
        checks.CheckDocument, body=compose.CheckBody,
    ),
    Endpoint(
        "POST", "/api/graphs/try", "try_graph", compose.start_try, "Run the graph of a text in a store of its own.",
        documents.RunResult, body=compose.TryBody, status=201, headers=("Location",), below=TRIES,
    ),
    Endpoint(
        "POST", "/api/graphs/save", "save_graph", compose.save, "Save the text of a graph as a file of the server.",
        compose.SavedDocument, body=compose.SaveBody, status=201, problems=(409,),
    ),
    Endpoint("GET", "/api/graphs/{name}", "show_graph", graphs.show, "Show a graph.", documents.GraphDocument),
    Endpoint(
        "GET", "/api/stats", "show_stats", stats.stats, "Show what runs spent, in groups.",
        documents.StatsDocument, query=requests.StatsQuery, streams=stats.StatsEvent,
    ),
    Endpoint(
        "GET", "/api/evaluations", "list_evaluations", evaluations.listing, "List the evaluations of the store.",
        evaluations.EvaluationPage, query=evaluations.EvaluationsQuery,
    ),
    Endpoint(
        "GET", "/api/evaluations/{name}", "show_evaluation", evaluations.show,
        "Show an evaluation, and its cases that are wrong or changed.", evaluations.EvaluationDocument,
        query=evaluations.EvaluationQuery,
    ),
    Endpoint(
        "GET", "/api/diff", "diff_runs", comparisons.diff, "Compare runs with the first of them.",
        documents.DiffDocument, query=requests.DiffQuery, problems=(404,),
    ),
    Endpoint(
        "POST", "/api/replays", "replay_runs", replays.start, "Begin to replay many runs.",
        replays.ReplaysDocument, body=replays.ReplaysBody, status=201, problems=(404,),
    ),
    Endpoint(
        "GET", "/api/replays", "list_replays", replays.listing, "List what came of the replays of many runs.",
        replays.ReplaysDocument, query=replays.ReplaysQuery, streams=replays.ReplaysEvent,
    ),
    Endpoint(
        "POST", "/api/replays/stop", "stop_replays", replays.stop, "Stop replaying many runs.",
        replays.ReplaysDocument, body=replays.StopReplaysBody, problems=(404,),
    ),
    Endpoint(
        "GET", "/api/diff/steps", "align_runs", comparisons.listing, "Put the steps of runs side by side.",
        comparisons.AlignedRuns, query=comparisons.AlignedQuery, problems=(404,),
        streams=comparisons.AlignedEvent,
    ),
    Endpoint(
        "GET", "/api/diff/step", "compare_step", comparisons.texts, "Compare the texts of one step of runs.",
        comparisons.RowTexts, query=comparisons.TextsQuery, problems=(404,),
    ),
    Endpoint("POST", "/api/logout", "log_out", _log_out, "End the session of a browser.", documents.LoggedOut),
)  # fmt: skip


def routes(*, read_only: bool) -> tuple[Endpoint, ...]:
    """Return the routes of a server."""
    return tuple(route for route in ROUTES if not (read_only and route.writes))


def routes_of_tries() -> tuple[Endpoint, ...]:
    """Return the routes of the tries of a server: those about existing runs."""
    return tuple(route for route in ROUTES if route.action not in _NOT_OF_TRIES)


_NOT_OF_TRIES = frozenset(
    {
        "archive_run", "start_run", "list_kinds", "check_graph", "try_graph", "save_graph", "list_workers", "log_out",
        "show_source", "list_evaluations", "show_evaluation",
    }
)  # fmt: skip


REF = "#/components/schemas/{model}"
OPENAPI = "/api/openapi.json"
_LAST: Mapping[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "integer", "minimum": 0},
    "description": "The number of the last record that the client has; it counts before `after`.",
}


_SAID = f"""Runs of agent graphs.

A body is JSON of at most {requests.LONGEST:,} bytes, in which each name occurs once in an object; unknown fields are
refused. A query has at most {requests.PARAMETERS} parameters. Errors are `application/problem+json` (RFC 9457).
"""


class _Schemas(GenerateJsonSchema):
    """Makes schemas whose titles are the names of models, and whose defaults fit."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave out a default of null where a client cannot give null: it stands for a field that is left out."""
        found = super().default_schema(schema)
        inner = schema["schema"]
        if found.get("default", ...) is None and not _takes_null(self.generate_inner(inner)):
            del found["default"]
        return found

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Give no title to fields: a generator of code would make a type of each."""
        return False


def _takes_null(schema: Mapping[str, Any]) -> bool:
    return (
        schema.get("type") == "null"
        or not schema.keys() & {"type", "anyOf", "$ref", "enum", "const"}
        or any(map(_takes_null, schema.get("anyOf", ())))
    )


def openapi_document(routes: Sequence[Endpoint], *, server: str = "", token: bool = False) -> dict[str, Any]:
    """Return the OpenAPI document of some routes.

    Args:
        routes: the routes.
        server: their path prefix.
        token: whether requests need a token.
    """
    models: dict[type[BaseModel], Any] = {ProblemDocument: "serialization"}
    for route in routes:
        models.update(dict.fromkeys(filter(None, (route.answer, route.streams)), "serialization"))
        models.update(dict.fromkeys(filter(None, (route.query, route.body)), "validation"))
    names, schemas = models_json_schema([*models.items()], ref_template=REF, schema_generator=_Schemas)
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
        "info": {"title": DISTRIBUTION, "version": __version__, "description": _SAID},
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
        found["responses"]["204"] = {"description": "The run has ended, and no further events come."}
        found["parameters"].append(_LAST)
    if route.body is not None:
        found["requestBody"] = {
            "description": f"At most {requests.LONGEST:,} bytes.",
            "required": True,
            "content": {"application/json": {"schema": refs[route.body]}},
        }
    for status in route.statuses():
        content = {MEDIA: {"schema": refs[ProblemDocument]}}
        found["responses"][str(status)] = {"description": TITLES[status], "content": content}
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
    """Describe an event of a stream. OpenAPI 3.1 cannot describe streams: the schema is that of each event."""
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
