"""Requests to models in a journal: each message, tool and schema of an answer once, and numbers in their place later.

The first intent that has such a part contains it, with its digest. The parts of a journal are numbered from 0 in the
order in which its intents contain them: the messages of an intent first, then its tools, then the schema of its answer.
Any request after that has `{"ref": [5, 9]}` in place of the parts 5 to 8, so a call adds to the journal what is new in
it, and a request is read without reading the requests before it. Journals of earlier versions have `{"ref": digest}`
for one message, and each tool and schema in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from orchestrator.json import FrozenObject, frozen
from orchestrator.kernel.records import Diverged, EffectIntended, Record

Part: TypeAlias = Mapping[str, Any]
MOST_PARTS = 100_000
"""Maximum number of parts of a request that are read."""
_WRAPPED: Mapping[str, str] = {"tools": "tool", "output": "schema"}
"""Field of a request -> the name under which a part of it is next to its digest."""


def shortened(request: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return a request in the form in which the next intent of a journal contains it.

    Args:
        request: the request; its parts are immutable objects.
        numbers: digest -> number of the parts that the journal has.
    """
    new: dict[str, int] = {}

    def short(parts: Iterable[FrozenObject], field: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        start = end = -1
        for part in parts:
            name = part.digest
            at = numbers.get(name, new.get(name, -1))
            if at == end >= 0:
                end = found[-1]["ref"][1] = end + 1
            elif at >= 0:
                start, end = at, at + 1
                found.append({"ref": [start, end]})
            else:
                new[name], end = len(numbers) + len(new), -1
                found.append({_WRAPPED[field]: part, "digest": name} if field in _WRAPPED else {**part, "digest": name})
        return found

    made = {**request, "messages": short(request["messages"], "messages")}
    if "tools" in request:
        made["tools"] = short(request["tools"], "tools")
    if "output" in request:
        (made["output"],) = short((request["output"],), "output")
    return made


def parts_in(request: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    """Yield the parts that an intent of a model's call contains, in the order of their numbers, with their digests."""
    for field in ("messages", "tools", "output"):
        for item in _items(request.get(field)):
            name = item.get("digest")
            if isinstance(name, str):
                if field not in _WRAPPED:
                    yield name, item
                elif isinstance(part := item.get(_WRAPPED[field]), Mapping) and len(item) == 2:
                    yield name, part


class Requests:
    """Reads the requests of a journal in full. Give it all records, in order, with `add`."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self._parts: list[Part] = []
        self._known: dict[int, int] = {}
        """Number of a record -> how many parts the journal had when it was written, its own included."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take the next record."""
        if not isinstance(record, EffectIntended | Diverged) or record.kind != "model":
            return
        for name, part in parts_in(record.request) if isinstance(record, EffectIntended) else ():
            if name not in self._numbers:
                self._numbers[name] = len(self._parts)
                self._parts.append(frozen(part))
        self._known[record.seq] = len(self._parts)

    def whole(self, record: EffectIntended | Diverged) -> dict[str, Any]:
        """Return the request of a model's call without references.

        A message is as in `Message.json_form`, with its digest if it has one. In place of what the journal does not
        have before the record is an entry that says so.
        """
        found = dict(record.request)
        if "messages" in found:
            found["messages"] = self._found(record, "messages")
        if "tools" in found:
            found["tools"] = self.offered(record)
        if isinstance(found.get("output"), Mapping):
            found["output"] = self._found(record, "output")[0]
        return found

    def offered(self, record: EffectIntended | Diverged) -> list[Part]:
        """Return the tools that were offered to the model of a call."""
        return self._found(record, "tools")

    def _found(self, record: EffectIntended | Diverged, field: str) -> list[Part]:
        known = self._known.get(record.seq, 0)
        found: list[Part] = []
        for item in _items(record.request.get(field)):
            ref = item.get("ref")
            if ref is not None and len(item) == 1:
                first, end = self._range(ref, known, MOST_PARTS - len(found))
                found += self._parts[first:end] if end > first else (_missing(ref),)
            elif field in _WRAPPED and len(item) == 2 and isinstance(part := item.get(_WRAPPED[field]), Mapping):
                found.append(part)
            else:
                found.append(item)
        return found

    def _range(self, ref: object, known: int, room: int) -> tuple[int, int]:
        """Return the first number of a reference and the one after its last; an empty range if it is wrong."""
        if isinstance(ref, str):
            at = self._numbers.get(ref, known)
            return (at, at + 1) if at < known else (0, 0)
        if isinstance(ref, list) and len(ref) == 2 and all(type(at) is int for at in ref):
            first, end = ref
            return (first, end) if 0 <= first < end <= min(known, first + room) else (0, 0)
        return 0, 0


def _missing(ref: object) -> Part:
    return {"role": "missing", "content": f"The journal has no parts {ref!r:.80} before this request."}


def _items(value: object) -> Sequence[Part]:
    found = value if isinstance(value, list | tuple) else (value,)
    return [one for one in found if isinstance(one, Mapping)]
