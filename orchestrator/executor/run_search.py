"""Search in the journals of runs, for words that are not indexed: in prompts and in the data of tools.

A page of such a search first lists the runs that the index finds. Then it searches journals, from the newest run on, up
to a limit; its cursor contains the position of the next page, also in the middle of a journal.

It is imported only for such a search: it needs records, and lists of runs do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from anyio import to_thread
from pydantic import BaseModel

from orchestrator.errors import EncryptionKeyMissing, RunUnknown, StoreCorrupt, StoreError, StoreTooNew
from orchestrator.kernel.records import Record
from orchestrator.stores.base import Page, RunInfo, Store
from orchestrator.stores.requests import contains, found_in, words
from orchestrator.stores.rows import Scanned

MOST_RECORDS = 5_000
"""Maximum number of records read by one page."""
MOST_RUNS = 1_000
"""Maximum number of runs whose journals one page reads."""
MOST_CHARACTERS = 8_000_000
"""Maximum number of characters of text in these records; beyond it a page stops."""
_RECORDS_AT_ONCE = 500
_INDEX, _JOURNAL, _INSIDE = "index", "journal", "inside"


class Listing(Protocol):
    """Lists the runs that match all filters besides the search."""

    async def __call__(self, *, search: str | None, after: str | None, limit: int) -> Page:
        """Return a page of these runs that match `search`, if it is given."""
        ...


async def searched(listing: Listing, store: Store, text: str, after: str | None, limit: int) -> Page:
    """Return a page of the runs with all words of a text: first by the index, then by their journals.

    Args:
        listing: the list of runs to search.
        store: the store with their journals.
        text: the text.
        after: the cursor of the previous page; None: the first page.
        limit: maximum number of runs on a page.

    Raises:
        StoreError: `after` is not a cursor of such a search.
    """
    wanted = words(text)
    if not wanted:
        return Page()
    spot = _Spot.of(after)
    limit = max(limit, 1)
    found: list[RunInfo] = []
    if spot.kind == _INDEX:
        page = await listing(search=text, after=spot.listed, limit=limit)
        if page.cursor is not None:
            return replace(page, cursor=_Spot(_INDEX, page.cursor).cursor)
        found += page.runs
        spot = _Spot(_JOURNAL)
        if len(found) >= limit:
            return Page(tuple(found), spot.cursor)
    return await _Scan(listing, store, wanted, found, limit).run(spot)


@dataclass(frozen=True, slots=True)
class _Spot:
    """The position at which a search continues."""

    kind: str
    listed: str | None = None
    """Cursor of the list of runs: the previous run; None: at its start."""
    seq: int = 0
    """In the middle of a journal: the last record read of the run after the cursor."""
    found: int = 0
    """The words found in it so far: bit n stands for the n-th."""
    run_id: str = ""
    """Id of that run. It may have been deleted before the search continues."""

    @property
    def cursor(self) -> str:
        return "|".join((self.kind, self.listed or "", str(self.seq), str(self.found), self.run_id))

    @staticmethod
    def of(cursor: str | None) -> _Spot:
        if cursor is None:
            return _Spot(_INDEX)
        try:
            kind, listed, seq, found, run_id = cursor.split("|", 4)
            if kind in (_INDEX, _JOURNAL, _INSIDE):
                return _Spot(kind, listed or None, int(seq), int(found), run_id)
        except ValueError:
            pass
        raise StoreError(f"{cursor!r} is not a page cursor of a search; pass the `cursor` of the previous page")


class _Scan:
    """A page of a search through journals."""

    def __init__(self, listing: Listing, store: Store, wanted: list[str], found: list[RunInfo], limit: int) -> None:
        self._listing, self._store, self._limit = listing, store, limit
        self._wanted = [*dict.fromkeys(wanted)]
        self._found = found
        self._seen = Scanned()

    async def run(self, spot: _Spot) -> Page:
        """Search journals until the page is full, or the limit is reached."""
        while True:
            page = await self._listing(search=None, after=spot.listed, limit=1)
            for info in page.runs:  # a single run, so the page's cursor points after it
                if self._is_over:
                    return self._page(spot, stopped=len(self._found) < self._limit)
                if spot.kind == _INSIDE and spot.run_id != info.run_id:
                    spot = _Spot(_JOURNAL, spot.listed)
                left = None
                if spot.kind == _INSIDE or not contains(self._wanted, *_indexed_texts(info)):  # else the index found it
                    left = await self._look(info, spot)
                if left is not None:
                    return self._page(left, stopped=True)
            if page.cursor is None:
                return self._page(None)
            spot = _Spot(_JOURNAL, page.cursor)

    @property
    def _is_over(self) -> bool:
        seen = self._seen
        read = seen.runs >= MOST_RUNS or seen.records >= MOST_RECORDS or seen.characters >= MOST_CHARACTERS
        return read or len(self._found) >= self._limit

    def _page(self, spot: _Spot | None, *, stopped: bool = False) -> Page:
        cursor = None if spot is None else spot.cursor
        return Page(tuple(self._found), cursor, replace(self._seen, stopped=stopped))

    async def _look(self, info: RunInfo, spot: _Spot) -> _Spot | None:
        """Search the journal of one run. Returns where to continue in it, if the limit was reached."""
        missing = {word for bit, word in enumerate(self._wanted) if not spot.found >> bit & 1}
        if spot.kind != _INSIDE:
            for text in _row_texts(info):
                missing -= found_in(missing, text)
        self._seen = replace(self._seen, runs=self._seen.runs + 1, back_to=info.created)
        seq = spot.seq
        while missing and seq < info.head:
            if self._seen.records >= MOST_RECORDS or self._seen.characters >= MOST_CHARACTERS:
                found = sum(1 << bit for bit, word in enumerate(self._wanted) if word not in missing)
                return _Spot(_INSIDE, spot.listed, seq, found, info.run_id)
            try:
                records = await self._store.read(info.run_id, after=seq, limit=_RECORDS_AT_ONCE)
                missing, count = await to_thread.run_sync(_looked, missing, records)
            except (StoreCorrupt, StoreTooNew, EncryptionKeyMissing, RunUnknown):
                return None  # opening the run reports the damage
            seen = self._seen
            self._seen = replace(seen, records=seen.records + len(records), characters=seen.characters + count)
            if not records:
                break
            seq = records[-1].seq
        if not missing:
            self._found.append(info)
        return None


def _indexed_texts(info: RunInfo) -> list[str]:
    """Return the texts of a row that the store indexes."""
    return _row_texts(info) if info.indexed else [*info.labels, *info.labels.values()]


def _row_texts(info: RunInfo) -> list[str]:
    return [info.input, info.output, *info.labels, *info.labels.values()]


def _looked(missing: set[str], records: Sequence[Record]) -> tuple[set[str], int]:
    """Return the words that were not found in the records, and the number of characters read."""
    count = 0
    for record in records:
        for text in _texts(record):
            count += len(text)
            missing = missing - found_in(missing, text)
            if not missing:
                return missing, count
    return missing, count


_FIELDS = ("values", "request", "result", "error", "question", "answer", "data", "update", "output")
"""Fields of records with texts of people, models and tools."""
_NOT_SAID = frozenset({"digest", "ref", "schema", "tools", "response_format"})
"""Keys in requests that the library adds."""


def _texts(record: Record) -> Iterator[str]:
    """Yield the texts in a record, and its numbers as strings."""
    for name in _FIELDS:
        value = getattr(record, name, None)
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="json", exclude_defaults=True)
        if value is not None:
            yield from _texts_in(value)


def _texts_in(value: object) -> Iterator[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            left.extend(part for key, part in one.items() if key not in _NOT_SAID)
        elif isinstance(one, list | tuple):
            left.extend(one)
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield repr(one)
