"""A store wrapper that encodes values with a codec before they are written, and decodes them after they are read.

`Values` defines, for each kind of value, what is encoded, what stays clear, and to which facts it is bound.
Values that were stored before the codec was set are accepted, unless the codec refuses clear values.
"""

from __future__ import annotations

import base64
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeVar, cast

from anyio import CancelScope

from orchestrator.errors import EncryptionKeyMissing, InvalidValue, RunConflict, RunExists, StoreCorrupt, StoreError
from orchestrator.json import JsonObject
from orchestrator.kernel.records import CodedRecord, Record, as_coded, decode, encode
from orchestrator.stores.base import Lease, Page, Store
from orchestrator.stores.codec import (
    About,
    Codec,
    Coding,
    Damaged,
    as_text,
    decoded_base64,
    described,
    encoded_in,
    of_text,
)
from orchestrator.stores.items import Area, FoundItem, Item, ItemWrite, Namespace, namespace_text, nearest_of, ranked
from orchestrator.stores.owner import held_here
from orchestrator.stores.requests import Append, ClaimRequest, NewRun, QuestionQuery, RunQuery
from orchestrator.stores.rows import (
    MARK,
    NOTICE,
    Message,
    Note,
    OpenQuestion,
    QuestionPage,
    RunInfo,
    RunSummary,
    Schedule,
    StoredRun,
    encrypted_with,
)
from orchestrator.stores.shared import copy_run, corrupt, load_of
from orchestrator.stores.wrapper import StoreWrapper

log = logging.getLogger("orchestrator")

_TEXTS = ("error", "input", "output", "question")

RowT = TypeVar("RowT", RunInfo, RunSummary)


@dataclass(frozen=True, slots=True)
class CodedItem(Item):
    """An item whose value is encoded. Its size for limits is that of the original item."""

    clear_size: int = 0

    @property
    def size(self) -> int:
        """Size in bytes that counts for a limit."""
        return self.clear_size


class Values:
    """Encodes and decodes the values of a store."""

    def __init__(self, codec: Codec) -> None:
        self._coding = Coding(codec)

    # -- records -------------------------------------------------------------------------------

    def record(self, run_id: str, record: Record) -> Record:
        """Return a record, encoded."""
        if as_coded(record) is not None:
            return record  # copied without its key
        about = _about_record(run_id, record)
        key_id, data = self._coding.encode(encode(record), about)
        structure, content = (str(getattr(record, name, None) or "") for name in ("structure", "content"))
        cipher = base64.b64encode(data).decode()
        coded = CodedRecord(
            seq=record.seq,
            ts=record.ts,
            key_id=key_id,
            cipher=cipher,
            structure=structure,
            content=content,
            type=record.type,
        )
        return cast("Record", coded)

    def records(self, run_id: str, stored: Sequence[Record]) -> list[Record]:
        """Return records, decoded.

        Raises:
            EncryptionKeyMissing: a key is missing.
            StoreCorrupt: one cannot be decoded, or is clear and follows an encoded one; the others are its `records`.
        """
        found: list[Record] = []
        behind = False
        for one in stored:
            coded = as_coded(one)
            if coded is not None:
                behind = True
                found.append(self._decoded(run_id, coded, found))
            elif behind or self._coding.refuses_clear:
                why = "those before it are" if behind else "the codec refuses clear values"
                raise corrupt(run_id, one.seq, f"it is not encrypted, and {why}", found)
            else:
                found.append(one)
        return found

    def _decoded(self, run_id: str, one: CodedRecord, before: Sequence[Record]) -> Record:
        about = _about_record(run_id, cast("Record", one))
        try:
            record = decode(self._coding.decode(one.key_id, decoded_base64(one.cipher), about))
        except Damaged as error:
            raise corrupt(run_id, one.seq, str(error), before) from error
        except ValueError as error:
            raise corrupt(run_id, one.seq, "it is not a record that this version knows", before) from error
        if (record.seq, record.type, record.ts) != (one.seq, one.type, one.ts):
            raise corrupt(run_id, one.seq, "its encrypted part is that of another record", before)
        return record

    # -- rows of runs --------------------------------------------------------------------------

    def summary(self, run_id: str, row: RowT) -> RowT:
        """Return a row with its texts encoded as one text in `error`, which no search reads."""
        texts = [row.error, row.input, row.output, row.question]
        if not any(texts) or (row.error.startswith(f"{MARK} ") and not any(texts[1:])):
            return row  # without texts, or copied without its key
        text = self._text(_plain(texts), {"kind": "summary", "run_id": run_id})
        return replace(row, error=text, input="", output="", question="")

    def row(self, info: RunInfo) -> RunInfo:
        """Return a run's row, decoded. A text whose key is missing is replaced by one that names the key."""
        if info.error.startswith(f"{MARK} "):
            about = {"kind": "summary", "run_id": info.run_id}
            try:
                texts = json.loads(self._clear(info.error, about))
                info = info.changed(**dict(zip(_TEXTS, map(str, texts), strict=True)), indexed=False)
            except EncryptionKeyMissing as error:
                info = replace(info, error="", input=encrypted_with(error.key_id))
            except (Damaged, ValueError):
                info = replace(info, error="", input="(encrypted, and damaged)")
        elif self._coding.refuses_clear and any((info.error, info.input, info.output, info.question)):
            info = info.changed(error="", input="(not encrypted)", output="", question="", indexed=False)
        if info.fault.startswith(f"{MARK} "):
            try:
                info = replace(info, fault=str(json.loads(self._clear(info.fault, _about_fault(info.run_id)))))
            except EncryptionKeyMissing as error:
                info = replace(info, fault=encrypted_with(error.key_id))
            except (Damaged, ValueError):
                info = replace(info, fault="(encrypted, and damaged)")
        return info

    def fault(self, run_id: str, text: str) -> str:
        """Return the reason why a drive stopped, encoded. A missing key must not prevent the release of the lease."""
        try:
            return self._text(_plain(text), _about_fault(run_id)) if text else text
        except EncryptionKeyMissing as error:
            return f"(not stored: it cannot be encrypted, because key {error.key_id!r} is missing)"

    # -- notes ---------------------------------------------------------------------------------

    def note(self, note: Note) -> Note:
        """Return a note, encoded as one text; its id, step and time stay clear."""
        if note.text.startswith(f"{MARK} "):
            return note  # copied without its key
        text = self._text(_plain([note.text, note.score, note.name, note.by]), _about_note(note))
        return replace(note, text=text, score=None, name="", by="")

    def written(self, note: Note) -> Note:
        """Return a note, decoded. One whose key is missing has a text that names the key."""
        try:
            if not note.text.startswith(f"{MARK} "):
                self._check_clear()
                return note
            text, score, name, by = json.loads(self._clear(note.text, _about_note(note)))
        except EncryptionKeyMissing as error:
            return replace(note, text=encrypted_with(error.key_id))
        except (Damaged, ValueError):
            return replace(note, text="(encrypted, and damaged)", score=None, name="", by="")
        return replace(note, text=text, score=score, name=name, by=by)

    # -- questions, messages, schedules --------------------------------------------------------

    def question(self, run_id: str, one: OpenQuestion) -> OpenQuestion:
        """Return an open question, encoded; its id, time and kind stay clear."""
        if encoded_in(one.data) is not None:
            return one
        return replace(one, data=self._object(one.data, _about_question(run_id, one)))

    def asked(self, run_id: str, one: OpenQuestion) -> OpenQuestion:
        """Return an open question, decoded; unchanged if its key is missing or it is damaged: it is in the journal."""
        try:
            return replace(one, data=self._of_object(one.data, _about_question(run_id, one)))
        except (EncryptionKeyMissing, Damaged):
            return one if encoded_in(one.data) is not None else replace(one, data={})

    def body(self, run_id: str, body: JsonObject) -> JsonObject:
        """Return a message, encoded; its type stays clear, and so do notices, which contain no values."""
        kind = body.get("type")
        if kind == NOTICE or encoded_in(body) is not None:
            return body
        clear = {"type": kind} if isinstance(kind, str) else {}
        return {**clear, **self._object(body, _about_message(run_id, body))}

    def message(self, one: Message) -> Message | None:
        """Return a message, decoded; None if it is damaged.

        Raises:
            EncryptionKeyMissing: its key is missing.
        """
        if one.body.get("type") == NOTICE:
            return one
        try:
            return replace(one, body=self._of_object(one.body, _about_message(one.run_id, one.body)))
        except Damaged as error:
            log.warning("run %s: message %d is dropped: %s", one.run_id, one.id, error)
            return None

    def schedule(self, one: Schedule) -> Schedule:
        """Return a schedule with encoded values; everything else stays clear."""
        if not one.values or encoded_in(one.values) is not None:
            return one
        return replace(one, values=self._object(one.values, _about_schedule(one)))

    def scheduled(self, one: Schedule) -> Schedule:
        """Return a schedule, decoded. Values without a key stay encoded: an executor with the key starts its runs.

        Raises:
            StoreError: the schedule is damaged.
        """
        if not one.values:
            return one
        try:
            return replace(one, values=self._of_object(one.values, _about_schedule(one)))
        except EncryptionKeyMissing:
            return one
        except Damaged as error:
            raise StoreError(f"schedule {one.name!r} is damaged ({error}); remove it and schedule it again") from error

    # -- items ---------------------------------------------------------------------------------

    def item(self, area: Area, item: Item) -> Item:
        """Return an item, encoded; its namespace, key and times stay clear. No index of the store finds it."""
        if not item.text and not item.vector and _encoded_json(item.data) is not None:
            return item
        parts = _plain([item.data, item.text, item.vector.hex()])
        data = _plain({MARK: self._text(parts, _about_item(area, item))})
        return CodedItem(
            item.namespace,
            item.key,
            data,
            created=item.created,
            updated=item.updated,
            expires=item.expires,
            clear_size=item.size,
        )

    def kept(self, area: Area, item: Item) -> Item:
        """Return a stored item, decoded.

        Raises:
            EncryptionKeyMissing: its key is missing.
            Damaged: it cannot be decoded.
        """
        text = _encoded_json(item.data)
        if text is None:
            self._check_clear()
            return item
        data, words, vector = json.loads(self._clear(text, _about_item(area, item)))
        vector = bytes.fromhex(vector)
        return Item(item.namespace, item.key, data, words, vector, item.created, item.updated, item.expires)

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot(self, run_id: str, seq: int, data: bytes) -> bytes:
        """Return a snapshot, encoded."""
        key_id, coded = self._coding.encode(data, _about_snapshot(run_id, seq))
        return f"{MARK} {key_id} ".encode() + coded

    def folded(self, run_id: str, seq: int, data: bytes) -> bytes | None:
        """Return a snapshot, decoded; None if it cannot be read. A clear one is ignored: writing it needs no key.

        Raises:
            EncryptionKeyMissing: its key is missing.
        """
        mark, key_id, coded = [*data.split(b" ", 2), b"", b""][:3]
        if mark != MARK.encode() or not key_id:
            return None
        try:
            return self._coding.decode(key_id.decode(), coded, _about_snapshot(run_id, seq))
        except (Damaged, UnicodeDecodeError) as error:
            log.debug("run %s: its snapshot at %d cannot be used: %s", run_id, seq, error)
            return None

    # -- parts ---------------------------------------------------------------------------------

    def _check_clear(self) -> None:
        if self._coding.refuses_clear:
            raise Damaged("it is not encrypted, and the codec refuses clear values")

    def _text(self, text: str, about: About) -> str:
        return as_text(*self._coding.encode(text.encode(), about))

    def _clear(self, text: str, about: About) -> bytes:
        found = of_text(text)
        if found is None:
            raise Damaged("it is not encrypted")
        return self._coding.decode(*found, about)

    def _object(self, value: JsonObject, about: About) -> JsonObject:
        return {MARK: self._text(_plain(value), about)}

    def _of_object(self, value: JsonObject, about: About) -> JsonObject:
        text = encoded_in(value)
        if text is None:
            self._check_clear()
            return value
        found = json.loads(self._clear(text, about))
        if not isinstance(found, dict):
            raise Damaged(f"{described(about)} is not an object")
        return found


def _about_record(run_id: str, record: Record) -> About:
    return {"kind": "record", "run_id": run_id, "seq": str(record.seq), "type": record.type}


def _about_fault(run_id: str) -> About:
    return {"kind": "fault", "run_id": run_id}


def _about_question(run_id: str, one: OpenQuestion) -> About:
    return {"kind": "question", "run_id": run_id, "name": one.id, "type": one.kind}


def _about_message(run_id: str, body: Mapping[str, object]) -> About:
    kind = body.get("type")
    return {"kind": "message", "run_id": run_id, "type": kind if isinstance(kind, str) else ""}


def _about_note(note: Note) -> About:
    return {"kind": "note", "run_id": note.run, "name": note.id, "seq": str(note.step)}


def _about_schedule(one: Schedule) -> About:
    return {"kind": "schedule", "name": one.name, "graph": one.graph}


def _about_item(area: Area, item: Item) -> About:
    return {"kind": f"{area} item", "namespace": namespace_text(item.namespace), "name": item.key}


def _about_snapshot(run_id: str, seq: int) -> About:
    return {"kind": "snapshot", "run_id": run_id, "seq": str(seq)}


def _encoded_json(data: str) -> str | None:
    """Return the encoded text of an item's data; None if it is not encoded."""
    if not data.startswith(f'{{"{MARK}":"{MARK} '):
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return encoded_in(found) if isinstance(found, dict) and len(found) == 1 else None


def _plain(value: object) -> str:
    """Return JSON text that every codec accepts, also with unpaired surrogates."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


__all__ = ["CodedStore"]

_MOST_KNOWN = 10_000
_AT_ONCE = 500


class CodedStore(StoreWrapper):
    """A store whose values are encoded in another store.

    It keeps every promise of the inner store, except one: a search of runs finds labels only.

    Args:
        inner: the store that keeps the encoded values. It is closed with this one.
        codec: encodes and decodes.
    """

    packs_snapshots = False
    """True if the executor compresses snapshots for this store."""

    def __init__(self, inner: Store, codec: Codec) -> None:
        if isinstance(inner, CodedStore):
            raise InvalidValue(f"store {inner.url} has a codec already: give one of them", where="codec")
        super().__init__(inner)
        self._values = Values(codec)
        self._load = load_of(inner)
        self._clear_runs: OrderedDict[str, int] = OrderedDict()
        """Run that started before the codec was set -> number of its first records that are known to be clear."""

    # ------------------------------------------------------------------------------- journal

    async def create(self, new: NewRun) -> None:
        info, lease, records = new.info, new.lease, new.records
        run_id = info.run_id
        coded = [self._values.record(run_id, one) for one in records]
        row = self._values.summary(run_id, info)
        if info.questions:
            row = replace(row, questions=tuple(self._values.question(run_id, one) for one in info.questions))
        if info.fault:
            row = replace(row, fault=self._values.fault(run_id, info.fault))
        try:
            notes = [self._values.note(one) for one in new.notes]
            await self.inner.create(replace(new, info=row, records=coded, notes=notes))
        except RunExists:
            # When repeated, the same records are encoded to other bytes: the inner store cannot compare them.
            if lease is None or not await self._is_same(run_id, records, 0, lease.token):
                raise
        self._clear_runs.pop(run_id, None)

    async def append(self, append: Append) -> int:
        run_id, values = append.run_id, self._values
        summary, questions, snapshot = append.summary, append.questions, append.snapshot
        coded = replace(
            append,
            records=[values.record(run_id, one) for one in append.records],
            summary=None if summary is None else values.summary(run_id, summary),
            questions=None if questions is None else [values.question(run_id, one) for one in questions],
            snapshot=None if snapshot is None else values.snapshot(run_id, append.head, snapshot),
        )
        try:
            return await self.inner.append(coded)
        except RunConflict:
            lease, records = append.lease, append.records
            if lease is None or not records:
                raise
            if not await self._is_same(run_id, records, append.after, lease, release=append.release):
                raise
            return append.head

    async def _is_same(
        self, run_id: str, records: Sequence[Record], after: int, token: str, *, release: bool = False
    ) -> bool:
        """Return True if a write was made before: the run ends, or starts, with these records under this lease."""
        held = await self.inner.lease(run_id)
        if not release if held is None else held.token != token:
            return False
        upto = after + len(records) if after == 0 else None
        try:
            return await self.read(run_id, after=after, upto=upto) == list(records)
        except StoreError:
            return False

    async def read(
        self, run_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        try:
            stored = await self.inner.read(run_id, after=after, upto=upto, limit=limit)
        except StoreCorrupt as error:
            raise self._partly(run_id, error) from error
        return await self._decoded(run_id, after, stored)

    async def _decoded(self, run_id: str, after: int, stored: Sequence[Record]) -> list[Record]:
        known = self._clear_before(run_id, after, stored)
        if known is not None:
            self._check_clear(run_id, stored, await self.inner.read(run_id, after=known, upto=after))
        return self._values.records(run_id, stored)

    async def load(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> StoredRun:
        """See `Loading`."""
        try:
            found = await self._load(run_id, after=after, upto=upto)
        except StoreCorrupt as error:
            raise self._partly(run_id, error) from error
        kept = found.snapshot
        data = None if kept is None else self._values.folded(run_id, *kept)
        if kept is not None and data is None:  # its snapshot is not used: all records are read
            return await self.load(run_id, after=0, upto=upto)
        kept = None if kept is None or data is None else (kept[0], data)
        records = await self._decoded(run_id, after or (0 if kept is None else kept[0]), found.records)
        return StoredRun(self._values.row(found.info), kept, records)

    def read_now(self, run_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        try:
            stored = self.inner.read_now(run_id, after=after, upto=upto)
        except StoreCorrupt as error:
            raise self._partly(run_id, error) from error
        known = self._clear_before(run_id, after, stored)
        if known is not None:
            self._check_clear(run_id, stored, self.inner.read_now(run_id, after=known, upto=after))
        return self._values.records(run_id, stored)

    def _partly(self, run_id: str, error: StoreCorrupt) -> StoreCorrupt:
        """Return the error of the inner store, with the readable records decoded."""
        stored = vars(error).get("records", ())
        vars(error)["records"] = tuple(self._values.records(run_id, stored))
        return error

    def _clear_before(self, run_id: str, after: int, stored: Sequence[Record]) -> int | None:
        """Return how many of a run's first records are known to be clear, if `stored` starts with a clear record and
        those between must be checked; else None."""
        if not stored or as_coded(stored[0]) is not None:
            return None
        known = self._clear_runs.get(run_id, 0)
        if after > known:
            return known
        self._note_clear(run_id, stored)
        return None

    def _check_clear(self, run_id: str, stored: Sequence[Record], before: Sequence[Record]) -> None:
        """Refuse clear records after encrypted ones: their author had no key."""
        if any(as_coded(one) is not None for one in before):
            raise corrupt(run_id, stored[0].seq, "it is not encrypted, and those before it are", ())
        self._note_clear(run_id, stored)

    def _note_clear(self, run_id: str, stored: Sequence[Record]) -> None:
        """Record that records are clear: these up to the first encrypted one, and all before them."""
        last = stored[0].seq - 1 + sum(1 for _ in takewhile(lambda one: as_coded(one) is None, stored))
        self._clear_runs[run_id] = max(self._clear_runs.get(run_id, 0), last)
        if len(self._clear_runs) > _MOST_KNOWN:
            self._clear_runs.popitem(last=False)

    # ---------------------------------------------------------------------------------- runs

    async def info(self, run_id: str) -> RunInfo:
        return self._values.row(await self.inner.info(run_id))

    async def runs(self, query: RunQuery) -> Page:
        page = await self.inner.runs(query)
        return replace(page, runs=tuple(map(self._values.row, page.runs)))

    async def claim(self, request: ClaimRequest) -> list[tuple[RunInfo, Lease]]:
        found = await self.inner.claim(request)
        try:
            return [(self._values.row(info), lease) for info, lease in found]
        except StoreError:  # the codec failed: the caller does not learn of these leases, and would keep them
            with CancelScope(shield=True):
                for _, lease in found:
                    held_here.pop(lease.token, None)
                    with suppress(StoreError):
                        await self.inner.drop_lease(lease.run_id, lease.token)
            raise

    async def parked(self, *, limit: int = 100) -> list[RunInfo]:
        return [self._values.row(info) for info in await self.inner.parked(limit=limit)]

    async def unsettled(self, graphs: Collection[str] | None) -> list[RunInfo]:
        return [self._values.row(info) for info in await self.inner.unsettled(graphs)]

    async def drop_lease(self, run_id: str, token: str, *, fault: str | None = None) -> None:
        coded = None if fault is None else self._values.fault(run_id, fault)
        await self.inner.drop_lease(run_id, token, fault=coded)

    async def open_questions(self, run_id: str) -> tuple[OpenQuestion, ...] | None:
        found = await self.inner.open_questions(run_id)
        return None if found is None else tuple(self._values.asked(run_id, one) for one in found)

    async def questions(self, query: QuestionQuery) -> QuestionPage:
        page = await self.inner.questions(query)
        rows = [replace(row, question=self._values.asked(row.run_id, row.question)) for row in page.questions]
        return replace(page, questions=tuple(rows))

    async def put_snapshot(self, run_id: str, seq: int, data: bytes) -> None:
        await self.inner.put_snapshot(run_id, seq, self._values.snapshot(run_id, seq, data))

    async def snapshot(self, run_id: str, *, upto: int | None = None) -> tuple[int, bytes] | None:
        found = await self.inner.snapshot(run_id, upto=upto)
        data = None if found is None else self._values.folded(run_id, *found)
        return None if found is None or data is None else (found[0], data)

    async def delete(self, run_id: str) -> bool:
        self._clear_runs.pop(run_id, None)
        return await self.inner.delete(run_id)

    async def copy(self, run_id: str, to: Store) -> None:
        await copy_run(self, run_id, to)

    # ------------------------------------------------------------- messages, notes, schedules

    async def post(self, run_id: str, body: JsonObject, *, key: str | None = None) -> int:
        return await self.inner.post(run_id, self._values.body(run_id, body), key=key)

    async def inbox(self, run_ids: Collection[str]) -> list[Message]:
        return self._messages(await self.inner.inbox(run_ids), several=len(run_ids) > 1)

    async def notices(self) -> list[Message]:
        return self._messages(await self.inner.notices(), several=True)

    def _messages(self, stored: Sequence[Message], *, several: bool) -> list[Message]:
        """Return the messages. One whose key is missing stays in the inbox, and does not block those of other runs.

        Raises:
            EncryptionKeyMissing: the key of one is missing, and only one run was requested.
        """
        found: list[Message] = []
        for one in stored:
            try:
                message = self._values.message(one)
            except EncryptionKeyMissing as error:
                if not several:
                    raise
                log.warning("run %s: message %d is left in its inbox: %s", one.run_id, one.id, error)
                continue
            found.append(message or replace(one, body={"type": "damaged"}))
        return found

    async def add_note(self, note: Note, *, most: int) -> None:
        await self.inner.add_note(self._values.note(note), most=most)

    async def notes(self, run_id: str) -> list[Note]:
        return [self._values.written(note) for note in await self.inner.notes(run_id)]

    def notes_now(self, run_id: str) -> list[Note]:
        return [self._values.written(note) for note in self.inner.notes_now(run_id)]

    async def put_schedule(self, schedule: Schedule) -> None:
        await self.inner.put_schedule(self._values.schedule(schedule))

    async def schedules(self) -> list[Schedule]:
        return [self._values.scheduled(one) for one in await self.inner.schedules()]

    # --------------------------------------------------------------------------------- items

    async def put_item(
        self,
        area: Area,
        item: Item,
        *,
        lifetime: float | None = None,
        write: ItemWrite | None = None,
        most: int | None = None,
        evict: bool = False,
    ) -> None:
        coded = self._values.item(area, item)
        await self.inner.put_item(area, coded, lifetime=lifetime, write=write, most=most, evict=evict)

    async def item(self, area: Area, namespace: Namespace, key: str) -> Item | None:
        found = await self.inner.item(area, namespace, key)
        try:
            return None if found is None else self._values.kept(area, found)
        except Damaged as error:
            raise StoreError(f"item {key!r} in {'/'.join(namespace)} is damaged ({error}); delete it") from error

    async def items(
        self, area: Area, prefix: Namespace = (), *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[Item]:
        found: list[Item] = []
        while len(found) < limit:  # damaged items are left out, and must not end a list early
            wanted = limit - len(found)
            page = await self.inner.items(area, prefix, after=after, limit=wanted)
            found += self._whole(area, page)
            if len(page) < wanted:
                break
            after = page[-1].place
        return found

    async def search_items(self, area: Area, prefix: Namespace, text: str, *, limit: int) -> list[FoundItem]:
        return ranked([item async for item in self._all(area, prefix)], text, limit)

    async def nearest_items(self, area: Area, prefix: Namespace, vector: bytes, *, limit: int) -> list[FoundItem]:
        return nearest_of([item async for item in self._all(area, prefix)], vector, limit)

    async def add_item(self, area: Area, item: Item) -> bool:
        return await self.inner.add_item(area, self._values.item(area, item))

    async def _all(self, area: Area, prefix: Namespace) -> AsyncIterator[Item]:
        after: tuple[str, str] | None = None
        while page := await self.inner.items(area, prefix, after=after, limit=_AT_ONCE):
            for item in self._whole(area, page):
                yield item
            after = page[-1].place

    def _whole(self, area: Area, page: list[Item]) -> list[Item]:
        found: list[Item] = []
        for item in page:
            try:
                found.append(self._values.kept(area, item))
            except Damaged:
                continue
        return found
