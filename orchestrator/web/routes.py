"""The table of routes. Routes, OpenAPI and docs/web_api.md come from it."""

from __future__ import annotations

from orchestrator.web import (
    comparisons,
    documents,
    forks,
    graphs,
    questions,
    replays,
    requests,
    run_commands,
    runs,
    statistics,
    streams,
    workers,
)
from orchestrator.web.compose import documents as compose_documents
from orchestrator.web.compose import handlers as compose
from orchestrator.web.endpoint import Call, Endpoint
from orchestrator.web.principals import cookies

_RUN = "/api/runs/{run_id}"
TRIES = "/try"
"""The path before the routes of tries."""


async def _log_out(call: Call) -> documents.LoggedOut:
    """End the session of the browser that asks."""
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
        "POST", f"{_RUN}/send", "send_event", run_commands.send, "Send an event to a run.", documents.RunResult,
        body=requests.SendBody, problems=(409,),
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
        compose_documents.KindList,
    ),
    Endpoint(
        "POST", "/api/graphs/check", "check_graph", compose.check, "Check the text of a graph file.",
        compose_documents.CheckDocument, body=compose_documents.CheckBody,
    ),
    Endpoint(
        "POST", "/api/graphs/try", "try_graph", compose.start_try, "Run the graph of a text in a store of its own.",
        documents.RunResult, body=compose_documents.TryBody, status=201, headers=("Location",), below=TRIES,
    ),
    Endpoint(
        "POST", "/api/graphs/save", "save_graph", compose.save, "Save the text of a graph as a file of the server.",
        compose_documents.SavedDocument, body=compose_documents.SaveBody, status=201, problems=(409,),
    ),
    Endpoint("GET", "/api/graphs/{name}", "show_graph", graphs.show, "Show a graph.", documents.GraphDocument),
    Endpoint(
        "GET", "/api/stats", "show_stats", statistics.stats, "Show what runs spent, in groups.",
        documents.StatsDocument, query=requests.StatsQuery, streams=statistics.StatsEvent,
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
        replays.ReplaysDocument, body=replays.StopBody, problems=(404,),
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
    """The routes that a server has."""
    return tuple(route for route in ROUTES if not (read_only and route.writes))


def routes_of_tries() -> tuple[Endpoint, ...]:
    """The routes of the tries of a server: those about runs that are there."""
    return tuple(route for route in ROUTES if route.action not in _NOT_OF_TRIES)


_NOT_OF_TRIES = frozenset(
    {"start_run", "list_kinds", "check_graph", "try_graph", "save_graph", "list_workers", "log_out"}
)
