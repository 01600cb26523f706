"""Rows of databases, in the form that SQLite and PostgreSQL share: runs, records, schedules, usage.

The columns of a run's row are named here once: `RUN_COLUMNS` are those of a new run, and `InfoRow`
are those that are read. Rows are read by these names. In a damaged file their values may be of any type.

Long strings of records are stored next to them, see `payloads`. The checksum of a row is that of the whole record.

A row of a run's usage has the names of the run's parts, and their numbers in cells of eight bytes. Most runs of a
graph have the same parts. So their numbers, concatenated, are columns at fixed distances, and sums over many
runs are computed column by column. Values shared by the runs of a day, a graph or a label are computed once.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple
from functools import lru_cache
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, cast

from orchestrator.errors import Archived, InvalidValue, StoreError
from orchestrator.json import PIECE, canonical
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Lease, Parent, RunInfo, RunSummary, Schedule
from orchestrator.stores.payloads import LEAST, Parted, Payloads, split
from orchestrator.stores.rows import MARK, MAX_TEXT, Note, ReplayFacts, RunTotals, Total, in_time, note_of
from orchestrator.stores.shared import corrupt, graph_unknown, json_object, read_record, too_large
from orchestrator.stores.statistics import By, Group, Groups, parts_by, unpriced_in
from orchestrator.values import MAX_RECORD_BYTES, cut, in_calendar

if TYPE_CHECKING:
    from orchestrator.json import JsonObject
    from orchestrator.kernel.records import Record


_MOST_CODED = 64 * MAX_TEXT
"""Maximum characters of a text in an encrypted row."""

Row: TypeAlias = tuple[int, int, bytes]
"""seq, checksum of the record, and its stored data: its bytes, or their skeleton."""


def checksum(run_id: str, seq: int, data: bytes) -> int:
    """Return the CRC-32 of a row; it includes the run and `seq`, so that a row in the wrong place is found too."""
    return zlib.crc32(data, zlib.crc32(run_id.encode(), seq & 0xFFFFFFFF))


def record_of(run_id: str, seq: int, crc: object, data: object, before: Sequence[Record]) -> Record:
    """Decode a record that was read, after comparing its checksum.

    Args:
        run_id: the run's id.
        seq: the record's number.
        crc: its stored checksum.
        data: its bytes, or a `Parted`.
        before: the records that were read before it.

    Raises:
        StoreCorrupt: it differs from what was written.
        StoreTooNew: a newer version of this library wrote it.
    """
    if isinstance(data, bytes) and checksum(run_id, seq, data) == crc:
        return read_record(run_id, seq, data, before)
    if isinstance(data, Parted):
        found = checksum(run_id, seq, b"")
        for piece in data.pieces:
            found = zlib.crc32(piece, found)
        if found == crc:
            return read_record(run_id, seq, data.json, before, data.texts)
    raise corrupt(run_id, seq, "its checksum does not match", before)


def rows_of(run_id: str, records: Sequence[Record]) -> tuple[list[Row], Payloads]:
    """Return records as rows, and the payloads that are stored next to them.

    Raises:
        StoreError: a record is larger than `MAX_RECORD_BYTES`.
    """
    return _rows(run_id, records, _encoded(run_id, records))


async def rows_of_next(run_id: str, records: Sequence[Record]) -> tuple[list[Row], Payloads]:
    """Like `rows_of`, for the next records of a run. Large records are converted in a thread."""
    data = _encoded(run_id, records)
    if sum(map(len, data)) <= PIECE:
        return _rows(run_id, records, data)
    from anyio import CancelScope

    from orchestrator.tasks import away

    made: list[tuple[list[Row], Payloads]] = []
    with CancelScope(shield=True):  # stores hold a cancellation off until they have written
        made.append(await away(lambda: _rows(run_id, records, data)))
    return made[0]


async def rows_of_new(run_id: str, records: Sequence[Record]) -> tuple[list[Row], Payloads]:
    """Like `rows_of`, for a new run: a fork or an import has all its records at once."""
    if len(records) == 1:
        return await rows_of_next(run_id, records)
    from orchestrator.tasks import away

    return await away(lambda: rows_of(run_id, records), records)


def _encoded(run_id: str, records: Sequence[Record]) -> list[bytes]:
    from orchestrator.kernel.records import encode  # see `read_record`

    found = []
    for record in records:
        data = encode(record)
        if len(data) > MAX_RECORD_BYTES:
            raise too_large(run_id, record, data)
        found.append(data)
    return found


def _rows(run_id: str, records: Sequence[Record], encoded: Sequence[bytes]) -> tuple[list[Row], Payloads]:
    rows: list[Row] = []
    payloads: dict[bytes, bytes] = {}
    for record, data in zip(records, encoded, strict=True):
        crc = checksum(run_id, record.seq, data)
        if len(data) >= LEAST:
            data, found = split(data)
            payloads.update(found)
        rows.append((record.seq, crc, data))
    return rows, payloads


def labels_of(text: object) -> dict[str, str] | None:
    """Return the labels in a run's row; None if they are damaged."""
    if text == "{}":
        return {}
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    return found


def row_text(text: object) -> str:
    """Return a text of a run's row, cut if too long, since lists show it and search it for secrets."""
    if text is None:
        return ""
    found = text if isinstance(text, str) else str(text)
    return found if len(found) <= MAX_TEXT else cut(found, _MOST_CODED if found.startswith(MARK) else MAX_TEXT)


def archived_text(archived: Archived) -> str:
    """Return the archive object of a run's records, as stored in its row."""
    return canonical(asdict(archived))


def archived_of(text: object) -> Archived | None:
    """Parse the archive object in a run's row; None if the records are in the store. A damaged one has no name."""
    if text is None:
        return None
    try:
        found = dict(json.loads(text)) if isinstance(text, str) else {}
        archive, name, sha256 = str(found["archive"]), str(found["name"]), str(found["sha256"])
        return Archived(archive, name, sha256, int(found["size"]), in_calendar(found["at"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Archived("", "", "", 0, 0.0)


def schedule_text(schedule: Schedule) -> str:
    """Return a schedule without its name and its next time, as JSON."""
    data = {
        "graph": schedule.graph,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "catch_up": schedule.catch_up,
        "values": dict(schedule.values),
        "labels": dict(schedule.labels),
        "approve": schedule.approve,
        "paused": schedule.paused,
    }
    return canonical(data)


def schedule_of(name: str, next_at: object, data: object) -> Schedule:
    """Return a schedule from its row.

    Raises:
        InvalidValue: the row is damaged.
    """
    try:
        fields = json.loads(str(data))
        if not isinstance(next_at, float) or in_calendar(next_at) != next_at:
            raise ValueError(f"its next time is {next_at!r}")
        return Schedule(name=name, next_at=next_at, **fields)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidValue(str(error), where=name) from error


def note_row(note: Note) -> tuple[str, float, str]:
    """Return the columns `id`, `at` and `data` of a note."""
    return note.id, note.at, canonical(note.data())


def stored_note(run_id: str, name: str, data: object) -> Note | None:
    """Return a note from its row; None if it is damaged."""
    try:
        note = note_of(run_id, json.loads(str(data)))
    except (ValueError, RecursionError):
        return None
    return note if note.id == name else None


def shown_notes(run_id: str, rows: Iterable[tuple[str, float, object]]) -> list[Note]:
    """Return the notes of a run in the order in which they were written. A damaged one says so."""
    return in_time(
        stored_note(run_id, name, data) or Note(run_id, text="(damaged)", at=in_calendar(at), id=name)
        for name, at, data in rows
    )


# ---------------------------------------------------------------------------------------------------- the row of a run

RUN_COLUMNS: dict[str, type[str | float | int]] = {
    "run_id": str, "graph": str, "status": str, "labels": str, "created": float, "updated": float, "head": int,
    "structure": str, "content": str, "due": float, "waiting": int, "token": str, "holder": str, "deaths": int,
    "retry_at": float, "fault": str, "parent": str, "parent_seq": int, "relation": str,
}  # fmt: skip
"""The columns of `runs` that are written for a new run, and the types of their values."""

STATUSES = {*FINAL, "running", "paused"}


def values_of_run(info: RunInfo, lease: Lease | None) -> tuple[object, ...]:
    """Return the values of `RUN_COLUMNS` of a new run."""
    token, holder = (None, None) if lease is None else (lease.token, lease.holder)
    parent = (None, None, None) if info.parent is None else astuple(info.parent)
    return (
        info.run_id,
        info.graph,
        info.status,
        canonical(dict(info.labels)),
        info.created,
        info.updated,
        info.head,
        info.structure,
        info.content,
        info.due,
        info.waiting,
        token,
        holder,
        info.deaths,
        info.retry_at,
        info.fault,
        *parent,
    )


class InfoRow(NamedTuple):
    """The columns from which `RunInfo` is made: of the run's row, its summary and the row of its lease's holder."""

    id: Any
    run_id: Any
    graph: Any
    status: Any
    labels: Any
    created: Any
    updated: Any
    head: Any
    structure: Any
    content: Any
    due: Any
    waiting: Any
    parent: Any
    parent_seq: Any
    relation: Any
    deaths: Any
    retry_at: Any
    fault: Any
    archived: Any
    token: Any
    holder: Any
    error: Any
    input: Any
    output: Any
    question: Any
    usage: Any
    steps: Any
    owner: Any
    ttl: Any
    expires: Any


_TABLES = {
    **dict.fromkeys(("error", "input", "output", "question", "usage", "steps"), "summaries"),
    **dict.fromkeys(("owner", "ttl", "expires"), "holders"),
}
"""The tables of columns that are not in `runs`."""
INFO_COLUMNS = ", ".join(f"{_TABLES.get(name, 'runs')}.{name}" for name in InfoRow._fields)
INFO_TABLES = "LEFT JOIN summaries ON summaries.run = runs.id LEFT JOIN holders ON holders.holder = runs.holder"


def info_of(row: InfoRow, now: float) -> RunInfo:
    """Return the facts about a run. A damaged row is read as far as possible. `now`: the clock of leases."""
    return RunInfo(
        run_id=row.run_id,
        graph=row.graph,
        status=row.status,
        labels=labels_of(row.labels) or {},
        created=in_calendar(row.created),
        updated=in_calendar(row.updated),
        head=row.head,
        structure=row.structure,
        content=row.content,
        due=None if row.due is None else in_calendar(row.due),
        waiting=row.waiting,
        error=row_text(row.error),
        input=row_text(row.input),
        output=row_text(row.output),
        question=row_text(row.question),
        usage=cast(Any, row.usage) if isinstance(row.usage, str) else None,  # parsed when it is read
        steps=row.steps if isinstance(row.steps, int) else 0,
        parent=None if row.parent is None else _parent_of(row),
        deaths=row.deaths if isinstance(row.deaths, int) else 0,
        retry_at=in_calendar(row.retry_at) if isinstance(row.retry_at, float) else None,
        fault=row_text(row.fault),
        lease=lease_of(row.run_id, row.token, row.holder, row.owner, row.ttl, row.expires, now),
        archived=archived_of(row.archived),
        replay=_replay_of(row.usage),
    )


def _parent_of(row: InfoRow) -> Parent | None:
    if not isinstance(row.parent, str) or row.relation not in ("fork", "replay", "call"):
        return None
    return Parent(row.parent, row.parent_seq if isinstance(row.parent_seq, int) else 0, row.relation)


def lease_of(
    run_id: str, token: object, holder: object, owner: object, ttl: object, expires: object, now: float
) -> Lease | None:
    """Return the lease of a run, if any, from its row and its holder's. A damaged one has expired.

    Args:
        now: the present time, by the clock of leases.
    """
    if token is None:
        return None
    seconds = ttl if isinstance(ttl, float) else 0.0
    end = expires if isinstance(expires, float) else 0.0
    return Lease(run_id, str(token), str(holder), json_object(owner), min(end - now, seconds), seconds, end)


def check_info(run_id: str, row: InfoRow) -> None:
    """Refuse a row with impossible values.

    Raises:
        StoreCorrupt: the row has some.
    """
    check_head(run_id, row.head)
    if row.run_id != run_id:
        raise corrupt(run_id, 0, f"its own run id is {row.run_id!r}", ())
    if row.status not in STATUSES:
        raise corrupt(run_id, 0, f"its status is {row.status!r}", ())
    if labels_of(row.labels) is None:
        raise corrupt(run_id, 0, f"its labels are {row.labels!r}", ())


def check_head(run_id: str, head: object) -> None:
    """Refuse a head that no run has.

    Raises:
        StoreCorrupt: the head is not valid.
    """
    if not isinstance(head, int) or not 0 <= head < 1 << 32:
        raise corrupt(run_id, 0, f"its head is {head!r}", ())


class JournalRow(NamedTuple):
    """The columns of a run's row that are needed to read its records."""

    id: Any
    head: Any
    run_id: Any
    graph: Any
    labels: Any
    structure: Any
    content: Any
    archived: Any


JOURNAL_COLUMNS = ", ".join(JournalRow._fields)


def check_beginning(run_id: str, row: JournalRow | InfoRow, started: Record) -> None:
    """Compare a run's row with its first record, unless that is encoded.

    Raises:
        StoreCorrupt: they differ.
    """
    from orchestrator.kernel.records import RunStarted  # see `read_record`

    if not isinstance(started, RunStarted):
        return
    own = row.run_id == started.run_id  # a fork starts with the first record of another run
    labels = labels_of(row.labels)
    facts = (
        ("graph", row.graph, started.graph),
        ("labels", labels, dict(started.labels) if own else labels),
        ("structure", row.structure, started.structure),
        ("content", row.content, started.content),
    )
    for name, stored, true in facts:
        if stored != true:
            raise corrupt(run_id, 0, f"its {name}: {stored!r}; {true!r} by its first record", ())


def graph_of(row: tuple[Any, ...] | None, digest: str, url: str) -> JsonObject:
    """Return a graph from its row.

    Raises:
        StoreError: the row is missing or damaged.
    """
    if row is None:
        raise graph_unknown(digest, url)
    (text,) = row
    try:
        data: JsonObject = json.loads(text, parse_constant=_refuse)
    except (TypeError, ValueError, RecursionError):
        raise StoreError(
            f"store {url}: graph {digest!r} is damaged; give the executor the graph itself, or restore the store from "
            "a copy"
        ) from None
    return data


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_ROW = struct.Struct("<4q2d")
_CELLS = 6
"""Number of cells for a part: calls, failed ones, input tokens, output tokens; cost, seconds."""

Name: TypeAlias = tuple[str, str, str]
"""Node, kind and name of a row of `RunTotals`."""


def packed(totals: RunTotals) -> tuple[str, bytes]:
    """Return a run's usage in stored form: the names of its parts, and their numbers."""
    names = json.dumps([(row.node, row.kind, row.name) for row in totals.rows], separators=(",", ":"))
    numbers = (
        _ROW.pack(row.calls, row.failed, row.input_tokens, row.output_tokens, row.cost, row.seconds)
        for row in totals.rows
    )
    return names, b"".join(numbers)


@lru_cache(maxsize=1000)
def names_of(text: object) -> tuple[Name, ...] | None:
    """Return the names of the parts; None if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
        names = tuple((str(node), str(kind), str(name)) for node, kind, name in found or ())
    except (ValueError, TypeError, RecursionError):
        return None
    return names if isinstance(found, list) else None


def unpacked(text: object, numbers: object, seconds: float) -> RunTotals | None:
    """Return the totals of a run; None if they are damaged."""
    names = names_of(text)
    if names is None or not fits(names, numbers):
        return None
    assert isinstance(numbers, bytes)
    rows = zip(names, _ROW.iter_unpack(numbers), strict=True)
    return RunTotals(tuple(Total(*name, *row) for name, row in rows), seconds)


def fits(names: Sequence[Name], numbers: object) -> bool:
    """Return True if there are as many numbers as the names need."""
    return isinstance(numbers, bytes) and len(numbers) == _ROW.size * len(names)


def _savings_of(usage: object) -> tuple[float, float, int]:
    """Return what a run saved, from its stored usage: see `Group.add_savings`. Zeros if it is missing or damaged."""
    try:
        found = json.loads(usage) if isinstance(usage, str) else {}
        replay = found.get("replay") or {}
        return float(found.get("cache_savings", 0.0)), float(replay.get("cost", 0.0)), int(replay.get("calls", 0))
    except (AttributeError, TypeError, ValueError, RecursionError, OverflowError):
        return 0.0, 0.0, 0


def usage_text(summary: RunSummary) -> str | None:
    """Return the column `usage` of a run: its usage as JSON, and the facts of a replay under the name `replay`."""
    usage, replay = summary.usage, summary.replay
    if replay is None:
        return None if usage is None else usage.model_dump_json(exclude_defaults=True)
    # with the number of steps even if it is 0, which tells a usage of nothing from none
    spent = {} if usage is None else {"steps": usage.steps, **usage.model_dump(mode="json", exclude_defaults=True)}
    return canonical({**spent, "replay": asdict(replay)})


def _replay_of(usage: object) -> ReplayFacts | None:
    """Return the facts of a replay from the column `usage`; None if there are none, or they are damaged."""
    if not isinstance(usage, str) or '"replay":' not in usage:
        return None
    try:
        found = json.loads(usage)["replay"]
        numbers = int(found["calls"]), int(found["tokens"]), float(found["cost"])
        return ReplayFacts(found["diverged"] is True, *numbers)
    except (LookupError, TypeError, ValueError, RecursionError, OverflowError):
        return None


DIVERGED = '"diverged":true'
"""A part of the column `usage` of the replays that diverged, and of no other run: users put no text into it."""


def part_in_names(kind: str, name: str) -> str:
    """Return the part of the column `names` that the runs have which used a model, a tool or a node.

    Within a string of JSON quotes are escaped, so the part is found nowhere else.
    """
    text = json.dumps(name)
    return f"[{text}," if kind == "node" else f',"{kind}",{text}]'


class Columns:
    """The numbers of many runs with the same parts, by column."""

    def __init__(self, names: Sequence[Name], rows: Sequence[bytes]) -> None:
        data = b"".join(rows)
        self._whole, self._real = array("q", data), array("d", data)
        if sys.byteorder == "big":
            self._whole.byteswap()
            self._real.byteswap()
        self._names, self._width, self._count = names, _CELLS * len(names), len(rows)

    def calls(self, parts: Iterable[int], kind: str) -> tuple[int, int]:
        """Return the number of calls of a kind in some parts, and how many failed."""
        mine = [at for at in parts if self._names[at][1] == kind]
        return self._sum(mine, 0), self._sum(mine, 1)

    def tokens(self, parts: Iterable[int]) -> tuple[int, int]:
        """Return the input and output tokens of some parts."""
        mine = [*parts]
        return self._sum(mine, 2), self._sum(mine, 3)

    def tokens_of_each(self, parts: Iterable[int]) -> Sequence[int]:
        """Return, for each run, the tokens of some parts."""
        found = [0] * self._count
        for at in parts:
            for column in (2, 3):
                found = list(map(add, found, self._whole[_CELLS * at + column :: self._width]))
        return found

    def costs(self, parts: Iterable[int]) -> array[float]:
        """Return, for each run, the cost of some parts."""
        return self._added(parts, 4)

    def seconds(self, parts: Iterable[int], kind: str) -> array[float]:
        """Return, for each run, the seconds of a kind in some parts."""
        return self._added([at for at in parts if self._names[at][1] == kind], 5)

    def _sum(self, parts: Iterable[int], column: int) -> int:
        return sum(sum(self._whole[_CELLS * at + column :: self._width]) for at in parts)

    def _added(self, parts: Iterable[int], column: int) -> array[float]:
        """Return, for each run, the sum of a column over some parts, added in the order of `stores.statistics`."""
        found: array[float] = array("d", bytes(8 * self._count))
        for at in parts:
            found = array("d", map(add, found, self._real[_CELLS * at + column :: self._width]))
        return found


_OF_RUN = 10
"""Columns of a run in `add_runs`."""


def add_runs(keys: Keys, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add whole runs.

    Args:
        keys: the groups.
        rows: for each run its status, its `Numbers`, its stored usage if it saved anything, and `keys.columns`.
    """
    for row in rows:
        group = keys.group_of(keys.about(row[_OF_RUN:]), ())
        if row[1] is None:
            group.add_uncounted(row[0])
            continue
        group.add(row)
        if row[_OF_RUN - 1] is not None:
            group.add_savings(*_savings_of(row[_OF_RUN - 1]))


def add_parts(by: By, keys: Keys, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add the parts of runs: those with the same parts, status and group together.

    Args:
        by: what makes a group.
        keys: the groups.
        rows: for each run the two columns of `parts`, its status, and `keys.columns`.
    """
    alike: dict[tuple[Any, ...], list[bytes]] = {}
    held = 0
    for text, numbers, status, *given in rows:
        about = keys.about(tuple(given))
        names = names_of(text)
        if names is None or not fits(names, numbers):
            keys.group_of(about, (None,) * len(by.within)).add_uncounted(status)
            continue
        alike.setdefault((names, status, about), []).append(numbers)
        held += 1
        if held >= _AT_ONCE:
            _add_alike(by, keys, alike)
            held = 0
    _add_alike(by, keys, alike)


def _add_alike(by: By, keys: Keys, alike: dict[tuple[Any, ...], list[bytes]]) -> None:
    for (names, status, about), rows in alike.items():
        columns = Columns(names, rows)
        for part, places in parts_by(by, names).items():
            costs = columns.costs(places)
            keys.group_of(about, part).add_many(
                status,
                (*columns.calls(places, "model"), *columns.calls(places, "tool"), *columns.tokens(places)),
                costs,
                columns.seconds(places, by.seconds_of),
                unpriced_in(columns.tokens_of_each(places), costs),
            )
    alike.clear()


_AT_ONCE = 10_000
"""Maximum number of runs whose numbers are collected before they are added up."""


class Keys:
    """The groups of rows; the values of a run are computed once for each graph, day and set of labels."""

    def __init__(self, by: By, groups: Groups) -> None:
        self._by, self._all = by, groups
        self._groups: dict[tuple[tuple[Any, ...], tuple[str | None, ...]], Group] = {}
        needed = {
            "graph": "graph" in by.names,
            "labels": any(name.startswith("label:") for name in by.names),
            "created": "day" in by.names,
        }
        self._names = [name for name, wanted in needed.items() if wanted]
        self._day_at = self._names.index("created") if "created" in self._names else None
        self.columns = "".join(f", runs.{name}" for name in self._names)
        """Columns of the run in each row; the part of the run follows."""

    def about(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what these columns determine about a run's group: equal for all runs of a day."""
        at = self._day_at
        if at is None or not isinstance(row[at], float) or abs(row[at]) >= _CALENDAR:  # or a damaged row
            return row
        return (*row[:at], row[at] // _DAY * _DAY, *row[at + 1 :])

    def group_of(self, about: tuple[Any, ...], part: tuple[str | None, ...]) -> Group:
        """Return the group of a result of `about`, and of a part of the run."""
        group = self._groups.get((about, part))
        if group is None:
            given = dict(zip(self._names, about, strict=True))
            found = labels_of(given.get("labels")) or {}
            values = self._by.run_part(str(given.get("graph")), given.get("created"), found)
            values |= dict(zip(self._by.within, part, strict=True))
            if len(self._groups) >= _MOST_KEYS:
                self._groups.clear()
            key = tuple(values.get(name) for name in self._by.names)
            group = self._groups[about, part] = self._all.group(key)
        return group


_DAY = 86_400.0
_CALENDAR = 1e11
_MOST_KEYS = 100_000
