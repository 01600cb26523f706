"""Records whose content a codec has encoded: what a store keeps, and what is read back without the codec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import EncryptionKeyMissing
from orchestrator.kernel.records.base import RECORD_VERSION, Moment

T = TypeVar("T")


class CodedRecord(BaseModel):
    """A record of which only position, time, type and digests of graphs are readable. Any other field of a record
    raises `EncryptionKeyMissing` when it is read, so nothing that needs the content works on without it.

    Stores keep it as they keep all records: `encode` writes it with its type at the end, `decode` reads it back.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    ts: Moment
    v: int = RECORD_VERSION
    key_id: str
    """Names the key of `cipher`."""
    cipher: str
    """The encoded record, in base64."""
    structure: str = ""
    """This and the next: digests of graphs, if the record names some. A copy of the run takes these graphs along."""
    content: str = ""
    type: str = Field(exclude=True)
    """The type of the record inside."""
    run_id: str = Field(default="", exclude=True)
    """The run that it was read from; empty: unknown."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                return super().__getattr__(name)  # what Python and pydantic look for
            raise self.missing()

    def missing(self) -> EncryptionKeyMissing:
        """The error for callers that need the content."""
        return EncryptionKeyMissing(f"run {self.run_id!r}" if self.run_id else f"record {self.seq}", self.key_id)


def coded_record(fields: object) -> Any:
    """A coded record, from what is stored of it.

    Raises:
        ValueError: it is none.
    """
    return CodedRecord.model_validate(fields)


def of_run(record: T, run_id: str) -> T:
    """The record; if it is coded, it names this run in its errors."""
    coded = as_coded(record)
    return record if coded is None else cast("T", coded.model_copy(update={"run_id": run_id}))


def check_readable(records: Iterable[object]) -> None:
    """Refuse coded records, where only some types of records are looked for.

    Raises:
        EncryptionKeyMissing: one is coded.
    """
    for record in records:
        coded = as_coded(record)
        if coded is not None:
            raise coded.missing()


def as_coded(record: object) -> CodedRecord | None:
    """A record as the coded one that it is; None: it is not coded."""
    return record if isinstance(record, CodedRecord) else None
