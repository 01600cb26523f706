"""Functions that all stores share: checks, errors, reading records and cursors, copying a run to another store."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.errors import GraphUnknown, InvalidValue, RunConflict, RunEnded, StoreCorrupt, StoreError, StoreTooNew
from orchestrator.json import JsonObject
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Loading, Relation, RunInfo, Store
from orchestrator.stores.requests import Append, NewRun, RunQuery
from orchestrator.stores.rows import NOTICE, StoredRun
from orchestrator.values import MAX_RECORD_BYTES

if TYPE_CHECKING:
    from orchestrator.kernel.records import Record


def check_seqs(run_id: str, records: Sequence[Record], after: int) -> None:
    """Raise ValueError for records that do not follow `after` one by one: a mistake of the caller, not a conflict."""
    for expected, record in enumerate(records, after + 1):
        if record.seq != expected:
            raise ValueError(
                f"run {run_id!r}: record {record.type} has seq {record.seq} where {expected} follows; "
                f"number the records from the head that you append after"
            )


def check_new(new: NewRun) -> None:
    """Raise ValueError for a new run whose row does not fit its records, its graph or its lease."""
    info, records = new.info, new.records
    check_seqs(info.run_id, records, 0)
    check_key("a run's id", info.run_id)
    check_key("the name of a graph", info.graph)
    if info.head != len(records):
        raise ValueError(f"run {info.run_id!r}: head is {info.head} but {len(records)} records were given")
    if new.graph is not None and not info.content:
        raise ValueError(f"run {info.run_id!r}: a graph is stored by its digest, and `content` is empty")
    if new.lease is not None and new.lease.run_id != info.run_id:
        raise ValueError(f"run {info.run_id!r}: the lease is on run {new.lease.run_id!r}; take one for this run")


def check_append(append: Append) -> None:
    """Raise ValueError for records that do not follow the head, and for a release without a lease."""
    check_seqs(append.run_id, append.records, append.after)
    if append.release and append.lease is None:
        raise ValueError(f"run {append.run_id!r}: release gives back the lease that the append names; name it (lease=)")


def out_of_reach(status: str, has_head: int, head: int, *, held: bool, elsewhere: bool) -> str | None:
    """Return why the records of a run cannot be moved to an archive; None if they can.

    Args:
        status: the run's status in the journal.
        has_head: its head in the store.
        head: the last record that is in the archive.
        held: whether an executor has its lease.
        elsewhere: whether its records are in another object.
    """
    if status not in FINAL:
        return f"it has not ended (it is {status})"
    if held:
        return "an executor holds it"
    if has_head != head:
        return f"its head is {has_head}, not {head}: it has continued meanwhile"
    return "another process archived it" if elsewhere else None


MAX_KEY_BYTES = 1000
"""Maximum bytes of a name by which a store finds something: indexes of databases have no room for much longer ones."""


def check_key(what: str, text: str) -> None:
    """Refuse a name that is too long for the index of some store.

    Raises:
        InvalidValue: the name is too long.
    """
    if len(text) * 4 > MAX_KEY_BYTES and len(text.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise InvalidValue(
            f"{what} begins with {text[:40]!r} and has more than {MAX_KEY_BYTES} bytes in UTF-8; use a shorter one"
        )


def check_postable(run_id: str, status: str, notice: bool) -> None:
    """Refuse a message to a run that has ended, unless it is a notice, because no executor would read it.

    Raises:
        RunEnded: the run has ended.
    """
    if status in FINAL and not notice:
        raise RunEnded(run_id, status)


def is_released(head: int, has_status: str, has_due: float | None, has_waiting: int, append: Append) -> bool:
    """Return True if a run without a lease is already in the state that a releasing append without records would leave.

    Args:
        head, has_status, has_due, has_waiting: columns of the run's row.
        append: the append.
    """
    status, due, waiting = append.status, append.due, append.waiting
    return (
        head == append.after
        and (status is None or (status, due) == (has_status, has_due))
        and (status is not None or due is None or due == has_due)
        and (waiting is None or waiting == has_waiting)
    )


def moved(run_id: str, head: int, after: int) -> RunConflict:
    """Return the error for an append after another head than the run's."""
    return RunConflict(run_id, f"its head is {head}, not {after}: another executor has continued it")


def taken_over(run_id: str) -> RunConflict:
    """Return the error for an append under a lease that the run no longer has."""
    return RunConflict(run_id, "the lease that it is written under was taken over or released")


STEP_LANDED = b'"type":"step_done"}'
"""Last bytes of the record of a step that ended well. A drive that wrote one made progress."""

DIED = "the process that drove it died, or was silent for too long"
"""The fault of a drive whose lease was never given back."""


def retry_delay(deaths: int) -> float:
    """Return the seconds before a run is given out again after `deaths` in a row: 1, then doubled, at most an hour."""
    return min(3600.0, 2.0 ** min(max(deaths - 1, 0), 12))


def page_cursor(created: float, number: int) -> str:
    """Return the cursor of a run in the list: keys, not a count, so that it stays valid when runs are added."""
    return f"{created!r}_{number}"


def parse_cursor(cursor: str) -> tuple[float, int]:
    """Parse a cursor of the list of runs.

    Raises:
        StoreError: the string is not a cursor.
    """
    created, _, number = cursor.rpartition("_")
    try:
        return _time(created), int(number)
    except ValueError:
        raise StoreError(f"{cursor!r} is not a page cursor; pass the `cursor` of the page before") from None


SortKey: TypeAlias = float | str
"""The value of a run by which a list is sorted."""


def sorted_cursor(sort: str, key: SortKey, created: float, number: int) -> str:
    """Return the cursor of a run in a list that is sorted by something else than `started`."""
    return f"{sort}={key}|{page_cursor(created, number)}"


def parse_sorted_cursor(sort: str, cursor: str) -> tuple[SortKey, float, int]:
    """Parse a cursor of a sorted list of runs.

    Raises:
        StoreError: the string is not a cursor of a list that is sorted by this.
    """
    key, _, place = cursor.rpartition("|")
    created, number = parse_cursor(place)
    try:
        if not key.startswith(f"{sort}="):
            raise ValueError(key)
        text = key.removeprefix(f"{sort}=")
        return text if sort in ("status", "graph") else _time(text), created, number
    except ValueError:
        raise StoreError(f"{cursor!r} is not a page cursor of a list sorted by {sort}") from None


def _time(text: str) -> float:
    """Parse a time in a cursor. NaN is not valid: it cannot be compared."""
    found = float(text)
    if math.isnan(found):
        raise ValueError(text)
    return found


UNLISTED = 100
"""Maximum number of runs without stored questions that `Store.questions` names."""


def question_cursor(asked: float, number: int, name: str) -> str:
    """Return the cursor of an open question in the list of all."""
    return f"{asked!r}_{number}_{name}"


def parse_question_cursor(cursor: str) -> tuple[float, int, str]:
    """Parse a cursor of the list of open questions.

    Raises:
        StoreError: the string is not a cursor.
    """
    try:
        asked, number, name = cursor.split("_", 2)
        return _time(asked), int(number), name
    except ValueError:
        raise StoreError(f"{cursor!r} is not a cursor of questions; pass the `cursor` of the page before") from None


def read_record(
    run_id: str, seq: int, data: bytes, before: Sequence[Record], texts: Mapping[str, str] | None = None
) -> Record:
    """Decode one stored record whose checksum was verified.

    Args:
        run_id: the run's id.
        seq: the record's number.
        data: its JSON.
        before: the records that were read before it.
        texts: strings by their names in the JSON; see `payloads.Parted`.

    Raises:
        StoreTooNew: a newer version of this library wrote it.
        StoreCorrupt: it is not a record, or is the record of another place.
    """
    from orchestrator.kernel.records import RECORD_VERSION, decode, of_run  # lists of runs do not load the models

    try:
        record = decode(data, texts)
    except ValueError as error:
        if _version_of(data) > RECORD_VERSION:
            raise StoreTooNew(
                f"run {run_id!r}: record {seq} was written by a newer version; update the library"
            ) from error
        raise corrupt(run_id, seq, "it is not a record that this version knows", before) from error
    if record.seq != seq:
        raise corrupt(run_id, seq, f"its own number is {record.seq}", before)
    return of_run(record, run_id)


def too_large(run_id: str, record: Record, data: bytes) -> StoreError:
    """Return the error for a record of more than `MAX_RECORD_BYTES`."""
    return StoreError(
        f"run {run_id!r}: record {record.seq} ({record.type}) has {len(data):,} bytes, and the limit is "
        f"{MAX_RECORD_BYTES:,}; store large values elsewhere, and keep their addresses"
    )


def run_line(run_id: str, records: int, notes: Sequence[object]) -> JsonObject:
    """Return the line of an export before the records of a run.

    Args:
        run_id: the run's id.
        records: the number of its records.
        notes: its notes, as `Note.data` returns them.
    """
    said = {"type": "run", "run_id": run_id, "records": records}
    return {**said, "notes": [*notes]} if notes else said


def notes_full(run_id: str, most: int) -> InvalidValue:
    """Return the error for a run that has no room for another note."""
    return InvalidValue(f"run {run_id!r} has {most:,} notes, the most that a run can have; delete one", where="notes")


def json_object(text: object) -> JsonObject:
    """Return a JSON object; an empty one if the text is damaged, which matches nothing."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def corrupt(run_id: str, seq: int, why: str, before: Sequence[Record]) -> StoreCorrupt:
    """Return the error for a damaged record, which carries the readable records before it as `records`."""
    error = StoreCorrupt(run_id, seq, why)
    vars(error)["records"] = tuple(before)
    return error


def store_closed(url: str) -> StoreError:
    """Return the error for a write to a store that is closed."""
    return StoreError(f"store {url} is closed; open it again to write, or the executor that was given its URL")


def graph_unknown(digest: str, url: str) -> GraphUnknown:
    """Return the error for a graph that a store does not have."""
    return GraphUnknown(f"store {url} has no graph {digest!r}; pass the graph itself, or copy its run again")


def load_of(store: Store) -> Callable[..., Awaitable[StoredRun]]:
    """Return the function that reads a run of a store: its `load` if it has one; see `Loading.load`."""
    return store.load if isinstance(store, Loading) else partial(read_apart, store)


async def read_apart(store: Store, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
    """Implement `Loading.load` with the methods of any store."""
    info = await store.info(run_id)
    kept = await store.snapshot(run_id, upto=upto) if after is None else None
    after = after or (0 if kept is None else kept[0])
    return StoredRun(info, kept, await store.read(run_id, after=after, upto=upto))


async def copy_run(source: Store, run_id: str, to: Store) -> None:
    """Implement `Store.copy` with the other methods: graphs first, so that the run never appears without them."""
    info = await source.info(run_id)
    records = await source.read(run_id, upto=info.head)
    for name in graphs_named(info, records):
        try:
            data = await source.graph(name)
        except GraphUnknown:
            continue  # `structure` and `content` both name graphs; only one of them may be stored
        await to.put_graph(name, data)
    await to.create(NewRun(await whole_row(source, info), records, notes=await source.notes(run_id)))
    for message in await source.inbox([run_id]):
        # notices concern observers of the other store's runs, and other messages of an ended run are never read
        if message.body.get("type") != NOTICE and info.status not in FINAL:
            await to.post(run_id, message.body)


async def whole_row(source: Store, info: RunInfo) -> RunInfo:
    """Return a row with its related data in the store, to be added to another store."""
    totals, questions = await source.totals(info.run_id), await source.open_questions(info.run_id)
    return replace(info, totals=totals, questions=questions)


def graphs_named(info: RunInfo, records: Iterable[Record]) -> list[str]:
    """Return the distinct digests of graphs in a run's row and records, including those of structures."""
    names = {info.structure: None, info.content: None}  # a dict keeps the order
    for record in records:
        for attribute in ("structure", "content"):
            name = getattr(record, attribute, None)
            if isinstance(name, str):
                names[name] = None
    names.pop("", None)
    return list(names)


def _version_of(data: bytes) -> int:
    try:
        value = json.loads(data)
    except ValueError:
        return 0
    version = value.get("v", 0) if isinstance(value, dict) else 0
    return version if isinstance(version, int) else 0


def too_old(url: str, version: int, oldest: int, newest: int) -> str:
    """Return the message for a store that a development version before the first release wrote.

    Args:
        url: the store.
        version: the version of its tables.
        oldest: the oldest version that is read.
        newest: the newest one.
    """
    return (
        f"store {url} has schema version {version}, from before the first release; this version of the library reads "
        f"versions {oldest} to {newest}. Export its runs with the version that wrote it, and import them into a new "
        f"store"
    )


async def forks_of(store: Store, run_id: str) -> list[RunInfo]:
    """Return the runs that were forked from a run, including replays, newest first.

    Args:
        store: the store of the runs.
        run_id: the run; it may have been deleted.
    """
    found: list[RunInfo] = []
    relations: tuple[Relation, ...] = ("fork", "replay", "call")
    for relation in relations:
        cursor: str | None = None
        while True:
            page = await store.runs(RunQuery(parent=run_id, relation=relation, after=cursor, limit=200))
            # The label of a run names its caller: for a called run that is its parent, for a fork another run.
            found += [info for info in page.runs if relation != "call" or info.labels.get("parent") != run_id]
            cursor = page.cursor
            if cursor is None:
                break
    return sorted(found, key=lambda info: info.created, reverse=True)
