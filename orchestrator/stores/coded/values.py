"""Each kind of value that a store keeps, as a codec leaves it: what is encoded, what stays clear, what it is bound to.

Values that were stored before the codec was set are read as they are, unless the codec refuses clear values.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from orchestrator.errors import EncryptionKeyMissing, StoreError
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.records import Record, decode, encode
from orchestrator.kernel.records.coded import CodedRecord, as_coded
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
from orchestrator.stores.items import Area, Item, namespace_text
from orchestrator.stores.rows import MARK, NOTICE, Message, OpenQuestion, RunInfo, RunSummary, Schedule, encrypted_with
from orchestrator.stores.shared import corrupt

log = logging.getLogger("orchestrator")

_TEXTS = ("error", "input", "output", "question")

RowT = TypeVar("RowT", RunInfo, RunSummary)


@dataclass(frozen=True, slots=True)
class CodedItem(Item):
    """An item whose value is encoded. For limits it counts as it was before."""

    clear_size: int = 0

    @property
    def size(self) -> int:
        """Bytes that count for a limit."""
        return self.clear_size


class Values:
    """Encodes and decodes the values of a store."""

    def __init__(self, codec: Codec) -> None:
        self._coding = Coding(codec)

    # -- records -------------------------------------------------------------------------------

    def record(self, run_id: str, record: Record) -> Record:
        """A record as it is stored."""
        if as_coded(record) is not None:
            return record  # copied by one who does not have its key
        about = _about_record(run_id, record)
        key_id, data = self._coding.encode(encode(record), about)
        structure, content = (str(getattr(record, name, None) or "") for name in ("structure", "content"))
        cipher = base64.b64encode(data).decode()
        coded = CodedRecord(
            seq=record.seq, ts=record.ts, key_id=key_id, cipher=cipher, structure=structure, content=content,
            type=record.type,
        )  # fmt: skip
        return cast("Record", coded)

    def records(self, run_id: str, stored: Sequence[Record]) -> list[Record]:
        """Records as they were written.

        Raises:
            EncryptionKeyMissing: a key is missing.
            StoreCorrupt: one cannot be decoded, or a clear one follows a coded one; the others are its `records`.
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
        """The texts of a row, as one encoded text in the place of `error`, which no search looks at."""
        texts = [row.error, row.input, row.output, row.question]
        if not any(texts) or (row.error.startswith(f"{MARK} ") and not any(texts[1:])):
            return row  # the latter: copied by one who does not have its key
        text = self._text(_plain(texts), {"kind": "summary", "run_id": run_id})
        return replace(row, error=text, input="", output="", question="")

    def row(self, info: RunInfo) -> RunInfo:
        """A run's row. Texts whose key is missing say so."""
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
        """Why a drive stopped, as it is stored. A missing key must not keep the lease from being given back."""
        try:
            return self._text(_plain(text), _about_fault(run_id)) if text else text
        except EncryptionKeyMissing as error:
            return f"(not stored: it cannot be encrypted, because key {error.key_id!r} is missing)"

    # -- questions, messages, schedules --------------------------------------------------------

    def question(self, run_id: str, one: OpenQuestion) -> OpenQuestion:
        """An open question as it is stored: its id, time and kind stay clear."""
        if encoded_in(one.data) is not None:
            return one
        return replace(one, data=self._object(one.data, _about_question(run_id, one)))

    def asked(self, run_id: str, one: OpenQuestion) -> OpenQuestion:
        """An open question; it stays encoded if its key is missing, or it is damaged: its run's journal has it."""
        try:
            return replace(one, data=self._of_object(one.data, _about_question(run_id, one)))
        except (EncryptionKeyMissing, Damaged):
            return one if encoded_in(one.data) is not None else replace(one, data={})

    def body(self, run_id: str, body: JsonObject) -> JsonObject:
        """A message as it is stored: its type stays clear, and notices do, which hold no values."""
        kind = body.get("type")
        if kind == NOTICE or encoded_in(body) is not None:
            return body
        clear = {"type": kind} if isinstance(kind, str) else {}
        return {**clear, **self._object(body, _about_message(run_id, body))}

    def message(self, one: Message) -> Message | None:
        """A message; None if it is damaged.

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
        """A schedule as it is stored: all but its values stays clear."""
        if not one.values or encoded_in(one.values) is not None:
            return one
        return replace(one, values=self._object(one.values, _about_schedule(one)))

    def scheduled(self, one: Schedule) -> Schedule:
        """A schedule; its values stay encoded if their key is missing: an executor that has the key begins its runs.

        Raises:
            StoreError: it is damaged.
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
        """An item as it is stored: its namespace, key and times stay clear. No index of the store finds it."""
        if not item.text and not item.vector and _encoded_json(item.data) is not None:
            return item
        parts = _plain([item.data, item.text, item.vector.hex()])
        data = _plain({MARK: self._text(parts, _about_item(area, item))})
        return CodedItem(
            item.namespace, item.key, data, created=item.created, updated=item.updated, expires=item.expires,
            clear_size=item.size,
        )  # fmt: skip

    def kept(self, area: Area, item: Item) -> Item:
        """An item.

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
        """A snapshot as it is stored."""
        key_id, coded = self._coding.encode(data, _about_snapshot(run_id, seq))
        return f"{MARK} {key_id} ".encode() + coded

    def folded(self, run_id: str, seq: int, data: bytes) -> bytes | None:
        """A snapshot; None: there is none that can be read. A clear one does not count: it needs no key to write.

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
            raise Damaged(f"{described(about)} is no object")
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


def _about_schedule(one: Schedule) -> About:
    return {"kind": "schedule", "name": one.name, "graph": one.graph}


def _about_item(area: Area, item: Item) -> About:
    return {"kind": f"{area} item", "namespace": namespace_text(item.namespace), "name": item.key}


def _about_snapshot(run_id: str, seq: int) -> About:
    return {"kind": "snapshot", "run_id": run_id, "seq": str(seq)}


def _encoded_json(data: str) -> str | None:
    """The encoded text of an item's data; None: it is not encoded."""
    if not data.startswith(f'{{"{MARK}":"{MARK} '):
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return encoded_in(found) if isinstance(found, dict) and len(found) == 1 else None


def _plain(value: object) -> str:
    """JSON as text that every codec can take, also with unpaired surrogates."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
