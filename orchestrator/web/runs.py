"""Runs: their list as an answer, a stream of changes and a screen; one run with its history, its events as a stream."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import unescape
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlencode

import anyio
from pydantic import model_validator
from starlette.responses import Response, StreamingResponse

from orchestrator.errors import Archived, OrchestratorError, StoreError
from orchestrator.executor import Event, Point, Run
from orchestrator.json import cut_up, encoded, in_pieces
from orchestrator.kernel.status import FINAL
from orchestrator.redaction import redacted
from orchestrator.render.html.step_data import clean
from orchestrator.render.terminal.texts import ago
from orchestrator.stores.base import Archiving
from orchestrator.tasks import away
from orchestrator.values import utc
from orchestrator.views.events import event_of
from orchestrator.views.run import explainer_of
from orchestrator.web import documents, principals, problems, questions, requests, streams
from orchestrator.web.endpoint import Call
from orchestrator.web.screens import shell

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from orchestrator.kernel.status import RunStatus


RunsQueryT = TypeVar("RunsQueryT", bound=requests.RunsQuery)
_LOOKED_AT = 2000
"""Rows that `authorize` may leave out in a row before a partial page is returned."""
SVG = "image/svg+xml"
LINES = "application/x-ndjson"
_PICTURE = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
_PAGE_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


async def page_of(call: Call[RunsQueryT]) -> documents.RunPage:
    """Return a page of runs."""
    query = call.query
    rows: list[documents.RunRow] = []
    looked = 0
    cursor = query.after
    while True:
        try:
            page = await call.executor.runs(**query.filters(), after=cursor, limit=query.limit - len(rows))
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            raise problems.fields_problem([{"field": "after", "message": str(error)}], "query") from None
        rows += await documents.rows_of([info for info in page.runs if await call.may_see(info)])
        looked += len(page.runs)
        cursor = page.cursor
        scanned = page.scanned
        full = len(rows) >= query.limit or looked >= _LOOKED_AT or (scanned is not None and scanned.stopped)
        if cursor is None or full:
            far = None if scanned is None else documents.ScannedJournals(**asdict(scanned))
            return documents.RunPage(runs=rows, cursor=cursor, scanned=far)


async def show(call: Call[requests.NoQuery]) -> documents.RunDocument:
    """Return everything about a run except its steps."""
    run = await call.executor.load(call.run_id)
    root = run.machine.root
    return await away(
        lambda: documents.RunDocument(
            **documents.result_fields(run, answerable=not call.settings.read_only),
            state=documents.blank(run.values),
            branches=documents.branches_of(run),
            why=str(documents.blank(explainer_of(run).run_reason())),
            limits=None if root is None else root.limits.model_dump(mode="json"),
            driver=call.run.driver,
            created=call.run.created,
            updated=call.run.updated,
        )
    )


async def history(call: Call[requests.PageQuery]) -> documents.Steps:
    """Return a page of the steps of a run: those that ended after record `after`, at most `limit`."""
    after, limit = call.query.after, call.query.limit
    points = await call.executor.history(call.run_id, after=after, limit=limit + 1)
    seen = points[:limit]
    steps = await away(
        lambda: [documents.blank(_step(point)) for point in seen], [(one.update, one.error, one.guards) for one in seen]
    )
    return documents.Steps(steps=steps, cursor=points[limit - 1].seq if len(points) > limit else None)


def _step(point: Point) -> dict[str, object]:
    error = None if point.error is None else point.error.model_dump(mode="json", exclude_none=True)
    return {**point.to_json(), "attempt": point.attempt, "failed": point.failed, "error": error}


async def records(call: Call[requests.PageQuery]) -> documents.Records:
    """Return a page of a run's records: those after record `after`, at most `limit`."""
    after, limit = call.query.after, call.query.limit
    found = await call.executor.store.read(call.run_id, after=after, limit=limit)
    events = await away(lambda: [documents.blank(event_of(call.run_id, record).to_json()) for record in found], found)
    last = after + len(found)
    return documents.Records(records=events, cursor=last if len(found) == limit and last < call.run.head else None)


async def transcript(call: Call[requests.TranscriptQuery]) -> documents.TranscriptDocument:
    """Return a part of the transcript of a run: the entries after number `after`, at most `limit`."""
    run, after, limit = await call.executor.load(call.run_id), call.query.after, call.query.limit

    def made() -> documents.TranscriptDocument:
        entries = run.transcript()
        shown = [documents.TranscriptEntry(**clean(one.to_json())) for one in entries[after : after + limit]]
        return documents.TranscriptDocument(
            run_id=run.run_id,
            status=cast("RunStatus", run.status),
            entries=shown,
            cursor=after + limit if len(entries) > after + limit else None,
        )

    return await away(made)


async def state(call: Call[requests.AtQuery]) -> documents.StateDocument:
    """Return the state of a run at a record."""
    run = await _at(call)
    return await away(
        lambda: documents.StateDocument(
            run_id=run.run_id,
            seq=run.seq,
            status=cast("RunStatus", run.status),
            state=documents.blank(run.values),
            branches=documents.branches_of(run),
            output=documents.blank(run.output),
        )
    )


async def drawing(call: Call[requests.AtQuery]) -> Response:
    """Return the drawing of the graph with the run over it, as SVG."""
    run = await _at(call)
    return await picture(run.to_svg)


async def picture(draw: Callable[[], str]) -> Response:
    """Return a picture as a response."""
    return documents.response_of(
        await away(lambda: encoded([draw()])), SVG, headers={"Content-Security-Policy": _PICTURE}
    )


async def why(call: Call[requests.WhyQuery]) -> documents.WhyDocument:
    """Explain the state of a run, or why a step ran."""
    run, seq = await call.executor.load(call.run_id), call.query.seq
    _check_record(run, seq)
    try:
        found = await away(lambda: run.why(seq))
    except OrchestratorError:
        raise
    except ValueError as error:
        raise problems.HttpProblem(404, "record-unknown", str(error)) from None
    return await away(lambda: documents.WhyDocument(**documents.blank(found.to_json())))


async def page(call: Call[requests.NoQuery]) -> Response:
    """Return the run as one HTML file."""
    run = await call.executor.load(call.run_id)
    notes = await call.may("list_notes")
    parts = await away(lambda: encoded([run.to_html(notes=notes)]))
    policy = _PAGE_POLICY.search(parts[0].decode())
    assert policy is not None
    headers = {"Content-Security-Policy": f"{unescape(policy[1])}; frame-ancestors 'none'"}
    return documents.response_of(parts, "text/html", headers=headers)


async def export(call: Call[requests.ExportQuery]) -> ASGIApp:
    """Return the export of a run, as lines of JSON."""
    query = call.query
    if not call.query.redact:
        await call.check(call.action, principals.Act(redact=False))
    notes = await call.may("list_notes")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", call.run_id)
    lines = call.executor.export(
        call.run_id,
        children=query.children,
        redact=query.redact,
        notes=notes,
        to=f"{name}.jsonl, by HTTP",
        by=call.principal,
    )
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return StreamingResponse(_ended(lines), media_type=LINES, headers=headers)


async def _ended(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    try:
        async for line in lines:
            for piece in cut_up(line):
                yield piece.encode()
            yield b"\n"
    except OrchestratorError:  # a damaged record: the import reports that the file is truncated
        problems.log.exception("an export failed")


async def _at(call: Call[requests.AtQuery]) -> Run:
    """Return the run at the time in the query.

    Raises:
        HttpProblem: the run has no such record.
    """
    at = call.query.at
    run = await call.executor.load(call.run_id, at=at)
    _check_record(run, at)
    return run


def _check_record(run: Run, seq: int | None) -> None:
    if seq is not None and seq > run.seq:
        raise problems.HttpProblem(
            404, "record-unknown", f"run {run.run_id!r} has {run.seq} records, and none is {seq}"
        )


SEARCHED = 10.0
"""Seconds between two searches of a stream with `q`: each may read journals."""
_SORTED = 3.0
"""Seconds between two looks of a stream at a sorted list: each reads something of every run that matches."""


async def listing(call: Call[requests.RunsQuery]) -> documents.RunPage | ASGIApp:
    """Return a page of runs.

    If the client accepts a stream: an event whenever the page, or the number of open questions, changes.
    """
    if streams.MEDIA in call.request.headers.get("accept", ""):
        return call.stream(_changes(call))
    return await page_of(call)


async def _changes(call: Call[requests.RunsQuery]) -> AsyncIterator[str]:
    query = call.query
    rest = SEARCHED if query.q else _SORTED if query.sort != "started" else 0.0
    watch = streams.StoreWatch(call.executor.store, call.settings, rest=rest)
    known: dict[str, object] | None = None
    asked = 0
    while True:
        await watch.wait()
        found, waiting = await page_of(call), await questions.waiting_for_people(call)
        rows, event = _rows(found), partial(documents.RunsEvent, questions=waiting, version=_shown(found, waiting))
        if known is None:
            yield streams.event_text(event(type="ready"))
        else:
            changed = [run_id for run_id in {**known, **rows} if known.get(run_id) != rows.get(run_id)]
            if changed or waiting != asked:
                yield streams.event_text(event(type="changed", run_ids=changed))
        known, asked = rows, waiting
        await anyio.sleep(call.settings.poll)


def _rows(page: documents.RunPage) -> dict[str, object]:
    return {row.run_id: row for row in page.runs}


def _shown(page: documents.RunPage, waiting: int) -> str:
    """Return a value that changes with what the screen shows of a page of runs, except for ages."""
    rows = [f"{row.run_id} {_version(row)}" for row in page.runs]
    return shell.key_of("\n".join([*rows, str(page.cursor), str(waiting)]))


_SPACED = json.JSONEncoder()


async def event_stream(call: Call[requests.EventsQuery]) -> ASGIApp:
    """Stream the events of a run until it ends.

    A run that has ended and has no further records is answered with 204, after which a browser does not reconnect.
    """
    after = _after(call)
    if call.run.status in FINAL and call.run.head <= after:
        return Response(status_code=204)
    events = call.executor.events(call.run_id, after=after, follow=True)
    return call.stream(_event_texts(events))


async def _event_texts(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """Yield events in the format of an event stream. Their `id` is the number of the record."""
    async for event in events:
        yield await away(partial(_event_text, event), event.data)


def _event_text(event: Event) -> str:
    number = "" if event.seq is None else f"id: {event.seq}\n"
    return f"{number}data: {''.join(in_pieces(redacted(event.to_json()), _SPACED))}\n\n"


def _after(call: Call[requests.EventsQuery]) -> int:
    """Return the number of the last record that the reader has. A browser that reconnects sends it in a header."""
    said = call.request.headers.get("last-event-id", "")
    if not said:
        return call.query.after
    if not (said.isascii() and said.isdecimal() and len(said) <= 16):
        raise problems.fields_problem(
            [{"field": "Last-Event-ID", "message": "it is not the number of a record"}], "query"
        )
    return int(said)


BAR = 48
"""Width of the bar of a row in pixels."""
STATUSES = ("running", "paused", "interrupted", "completed", "failed", "exhausted", "cancelled")


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list."""

    id: str
    key: str
    version: str
    status: str
    shown: str
    """Its status in words: `diverged` for a replay that ended there and whose status is `cancelled`."""
    diverged: bool
    graph: str
    input: str
    told: str
    """Its question, its error, or its answer."""
    kind: str
    """Kind of `told`: `question`, `failed`, `output`, or empty."""
    labels: Sequence[tuple[str, str]]
    parent: documents.ParentRun | None
    steps: str
    tokens: str
    cost: str
    cost_note: str
    seconds: str
    work_width: float
    rest_width: float
    time_label: str
    created: float
    created_iso: str
    created_ago: str
    updated: float
    updated_iso: str
    updated_ago: str
    archived: str
    """Place of its records; empty: the store."""


def view_of(row: documents.RunRow, longest: float, now: float) -> Row:
    """Return a run as a row of the table.

    Args:
        row: the run, as the API lists it.
        longest: duration in seconds of the longest run of the page.
        now: Unix seconds.
    """
    worked = row.seconds or 0.0
    rest = max(0.0, span_of(row, now) - worked)
    scale = (BAR - 2) / max(longest, 0.001)
    told, kind = _told(row)
    return Row(
        id=row.run_id,
        key=shell.key_of(row.run_id),
        version=_version(row),
        status=row.status,
        shown="diverged" if row.diverged and row.status == "cancelled" and row.error else row.status,
        diverged=row.diverged,
        graph=row.graph,
        input=row.input,
        told=told,
        kind=kind,
        labels=sorted(row.labels.items()),
        parent=row.parent,
        steps=f"{row.steps:,}",
        tokens="" if row.tokens is None else f"{row.tokens:,}",
        cost=shell.money(row.cost) if row.cost else "?" if row.tokens else "",
        cost_note="" if row.cost or not row.tokens else "No price is known for its models, or they are free.",
        seconds=shell.lasting(worked),
        work_width=round(2 + worked * scale, 1),
        rest_width=round(rest * scale, 1),
        time_label=f"worked {shell.lasting(worked)}, waited {shell.lasting(rest)}",
        created=row.created,
        created_iso=utc(row.created).isoformat(timespec="seconds"),
        created_ago=ago(row.created, now),
        updated=row.updated,
        updated_iso=utc(row.updated).isoformat(timespec="seconds"),
        updated_ago=ago(row.updated, now),
        archived=_place(row),
    )


def _version(row: documents.RunRow) -> str:
    """Return a value that changes with the content of the row."""
    told, _ = _told(row)
    place = "" if row.archived is None else row.archived.name
    return shell.key_of(f"{row.head} {row.status} {row.steps} {told} {row.waiting} {row.tokens} {row.deaths} {place}")


def _place(row: documents.RunRow) -> str:
    return "" if row.archived is None else Archived(**row.archived.model_dump()).line()


def span_of(row: documents.RunRow, now: float) -> float:
    """Return the seconds from the start to the end of a run, or until now if it has not ended."""
    stands = row.status in FINAL or row.status == "interrupted"
    return max(0.0, (row.updated if stands else max(row.updated, now)) - row.created)


def _told(row: documents.RunRow) -> tuple[str, str]:
    if row.question:
        return row.question, "question"
    if row.error or (row.fault and row.deaths):
        return row.error or row.fault, "failed"
    return (row.output, "output") if row.output else ("", "")


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that is set, and the URL without it."""

    label: str
    without: str


_NAMES = {
    "graph": "graph",
    "label": "label",
    "q": "search",
    "parent": "from run",
    "relation": "made by",
    "since": "since",
    "failed_tool": "failed tool",
    "model": "model",
    "tool": "tool",
    "node": "node",
    "begun_since": "started since",
    "begun_until": "started until",
}
"""Filters that are shown with their values, and their names."""
SORTS = (
    ("started", "Newest first"),
    ("updated", "Last changed"),
    ("duration", "Time"),
    ("cost", "Cost"),
    ("status", "Status"),
    ("graph", "Graph"),
)
"""Keys of the order of the list, and their names."""
_IN_FORM = frozenset({"q", "graph", "begun_since", "begun_until", "sort", "after"})
"""Parameters that fields of the form have."""
_KNOWN_LABELS = 40
"""Maximum number of labels that the form offers."""
_PLAIN = frozenset(" ._:@/+-")
"""Signs of labels that the form offers: a field cannot show others as escapes."""


class ScreenQuery(requests.RunsQuery):
    """The query of the screen: fields of its form that were left empty do not count, and replays are hidden."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {
            name: [one for one in value if one] if isinstance(value, list) else value for name, value in data.items()
        }
        return {name: value for name, value in given.items() if value not in ("", [])}

    @property
    def with_replays(self) -> bool:
        """Whether replays are in the list: they are if it is asked for them, for diverged ones, or for relatives."""
        if self.replays is not None:
            return self.replays
        return bool(self.diverged or self.parent or self.relation)

    def filters(self) -> dict[str, Any]:
        """See `RunsQuery`."""
        return super().filters() | {"replays": self.with_replays}


@dataclass(frozen=True, slots=True)
class Address:
    """Builds URLs of a list: its query, with some parameters changed."""

    root: str
    query: Sequence[tuple[str, str]]

    def __call__(self, changes: Mapping[str, str | None]) -> str:
        """Return the URL of the first page with these parameters; None removes one."""
        kept = [(name, value) for name, value in self.query if name not in changes]
        return self._with(kept + [(name, value) for name, value in changes.items() if value is not None])

    def page(self, cursor: str | None) -> str:
        """Return the URL of the page after this cursor."""
        kept = [(name, value) for name, value in self.query if name != "after"]
        return f"{self.root}/runs?{urlencode([*kept, ('after', cursor)])}" if cursor else ""

    def filters(self) -> list[Filter]:
        """Return the filters that are set and have no chip of their own."""
        return [
            Filter(f"{_NAMES[pair[0]]}: {pair[1]}", self._with([one for one in self.query if one != pair]))
            for pair in self.query
            if pair[0] in _NAMES and pair[1] != "*"
        ]

    def _with(self, query: Sequence[tuple[str, str]]) -> str:
        pairs = [(name, value) for name, value in query if name != "after"]
        return f"{self.root}/runs{'?' if pairs else ''}{urlencode(pairs)}"


async def screen(call: Call[ScreenQuery]) -> Response:
    """Show the list of runs."""
    query = call.query
    found = await page_of(call)
    now = time.time()
    longest = max((span_of(row, now) for row in found.runs), default=0.0)
    rows = [view_of(row, longest, now) for row in found.runs]
    given = call.request.query_params
    address = Address(shell.root_of(call), [(name, value) for name, value in given.multi_items() if value])
    waiting = await questions.waiting_for_people(call)
    shown = _shown(found, waiting)
    asked = [*address.query, *([] if query.with_replays or query.replays is False else [("replays", "false")])]
    return await shell.page(
        call,
        "runs",
        {
            "title": "Runs",
            "rows": rows,
            **_form(call, found),
            "all_statuses": STATUSES,
            "statuses": query.status,
            "filters": address.filters(),
            "filtered": any(name not in ("sort", "ascending", "limit") for name, _ in address.query),
            "address": address,
            "q": query.q or "",
            "found": f"#{urlencode({'q': query.q}, quote_via=quote)}" if query.q else "",
            "kept": [one for one in address.query if one[0] not in _IN_FORM],
            "sort": query.sort,
            "ascending": query.ascending,
            "turned": partial(_turned, query),
            "replays": query.with_replays,
            "diverged": query.diverged is True,
            "archives": isinstance(call.executor.store, Archiving),
            "older": address.page(found.cursor),
            "newest": address({}) if query.after else "",
            "open_questions": questions.counted(waiting),
            "waiting": query.waiting is True,
            "failed_tool": query.failed_tool or "",
            "scanned": _scanned(found),
            "changes": f"/runs?{urlencode(asked)}",
            "shown": shown,
        },
        root=address.root,
        version=["runs", address.query, shown],
    )


def _form(call: Call[ScreenQuery], found: documents.RunPage) -> dict[str, object]:
    """Return what the fields of the form have and offer, from the server's graphs and the runs of the page."""
    query = call.query
    graphs = {*call.executor.graphs, *(row.graph for row in found.runs), *filter(None, [query.graph])}
    labels = dict.fromkeys(f"{name}:{value}" for row in found.runs for name, value in row.labels.items())
    plain = [one for one in labels if all(sign.isalnum() or sign in _PLAIN for sign in one)]
    return {
        "graph": query.graph,
        "graph_names": sorted(graphs),
        "known_labels": plain[:_KNOWN_LABELS],
        "first": shell.day_of(requests.unix(query.begun_since)),
        "last": shell.day_of(requests.unix(query.begun_until), last=True),
        "sorts": SORTS,
    }


def _turned(query: ScreenQuery, key: str, first: str) -> bool:
    """Return whether a click on the title of a column sorts in ascending order: the other one if it is sorted by it."""
    return not query.ascending if query.sort == key else first == "true"


def _scanned(found: documents.RunPage) -> str:
    """Describe the progress of a search through journals; empty without a search."""
    scan = found.scanned
    if scan is None:
        return ""
    goes_on = "; Older goes on" if found.cursor is not None else ""
    return f"Searched {scan.records:,} records of {scan.runs:,} runs for words beside inputs and outputs{goes_on}."
