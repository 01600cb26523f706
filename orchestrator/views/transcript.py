"""The transcript of a run: what models were told and replied, the tools that were called, and what people decided.

Entries are in the order of the journal, and are only added:

    message      a message that no earlier request had
    turn         a call of a model, with its reply
    tool         a call of a tool, with its result
    question     a question to a person, with the answer
    compaction   a step that replaced messages, so that later requests are shorter

A request repeats the messages of the one before it. Each message is an entry once: not again in later requests, and not
if an entry shows it already, as the reply of a turn or the result of a tool. So a conversation reads from its start to
its end, and so do graphs whose steps each have a prompt of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from orchestrator.json import digest
from orchestrator.kernel import records as r
from orchestrator.kernel.plan import Plan
from orchestrator.views.causes import Causes
from orchestrator.views.reader import Fold, read
from orchestrator.views.step_work import JournaledCall
from orchestrator.views.timeline import AskedQuestion, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.kernel.run_state import Delta

EntryKind: TypeAlias = Literal["message", "turn", "tool", "question", "compaction"]
_COMPACTED = ("compacted", "cleared")
"""Outcomes of `Compact` and `ClearResults` if they replaced messages."""
_REASONING = ("reasoning_content", "reasoning")
"""Names of the field with a model's reasoning, in the extras of a reply."""
_WAITS = ("timer", "event")
"""Kinds of questions that are not for people."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a transcript. `call` and `question` change when the call ends or the question is answered."""

    number: int
    """Number from 1."""
    seq: int
    """Its record: for a message that of the call whose request has it."""
    kind: EntryKind
    activation: str
    path: str
    node: str
    digest: str = ""
    """Digest of a message."""
    message: Mapping[str, Any] | None = None
    """A message as plain JSON."""
    call: JournaledCall | None = None
    """The call of a turn or a tool."""
    question: AskedQuestion | None = None
    replaced: int = 0
    """Number of messages, or results of tools, that a compaction replaced."""

    @property
    def summary(self) -> bool:
        """True for a message that a compaction wrote in place of others."""
        return "summary_of" in _data(self.message)

    @property
    def open(self) -> bool:
        """True if the entry may still change: a call that has not ended, or a question without an answer."""
        if self.call is not None:
            return self.call.ended is None
        return self.question is not None and self.question.answer is None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain JSON, without empty fields. Pictures are named by their types and sizes."""
        found: dict[str, Any] = {
            "number": self.number,
            "seq": self.seq,
            "kind": self.kind,
            "node": self.node,
            "path": self.path,
            "open": self.open,
        }
        if self.message is not None:
            found |= _message_json(self.message) | {"summary": self.summary}
        if self.call is not None:
            found |= _turn_json(self.call) if self.kind == "turn" else _tool_json(self.call)
        if self.question is not None:
            found |= _question_json(self.question)
        if self.kind == "compaction":
            found |= {"replaced": self.replaced, "at": self.seq - 1}
        kept = ("number", "seq", "kind", "node", "open")
        return {name: value for name, value in found.items() if name in kept or value not in ("", None, [], {}, False)}


def transcript(plan: Plan, records: Iterable[r.Record]) -> list[Entry]:
    """Return the transcript of a run.

    Args:
        plan: the plan of the run's graph; its code is not needed.
        records: records from the run's first one, without gaps.

    Raises:
        StoreCorrupt: the records do not follow each other.
    """
    causes = Causes()
    rows = Timeline(causes)
    found = Transcript(rows)
    read(plan, records, causes, rows, found)
    return found.entries


class Transcript(Fold):
    """The entries of a run.

    Args:
        rows: the run's timeline: a fold that is read before this one.

    Attributes:
        entries: In the order of the journal.
    """

    def __init__(self, rows: Timeline) -> None:
        self._rows = rows
        self.entries: list[Entry] = []
        self._seen: Counter[str] = Counter()
        """Digest of a message -> how often the request with most copies of it had it."""
        self._replies: Counter[tuple[str, tuple[str, ...]]] = Counter()
        """Replies that no request has repeated yet: text, and names of the called tools."""
        self._results: Counter[str] = Counter()
        """Tool -> results that no request has repeated yet."""
        self._asked_last: dict[tuple[str, str], tuple[list[Any], Counter[str]]] = {}
        """Path and node -> the messages of its last request, and how often each is among them."""

    def applied(self, record: r.Record, delta: Delta) -> None:
        """See `Fold.applied`."""
        match record:
            case r.EffectIntended(kind="model" | "tool"):
                self._called(record)
            case r.EffectSettled(ok=True):
                self._settled(record)
            case r.Asked() if record.question.kind not in _WAITS:
                self._asked(record)
            case r.StepDone():
                self._compacted(record)
            case r.Forked():
                self._forked()
            case _:
                pass

    def _called(self, record: r.EffectIntended) -> None:
        row = self._rows.by_activation.get(record.activation)
        call = None if row is None or not row.calls else row.calls[-1]
        if call is None or call.intended is not record:
            return  # the call is made again under its key
        if record.kind == "model":
            self._ask_model(record)
        self._add("turn" if record.kind == "model" else "tool", record, call=call)

    def _ask_model(self, record: r.EffectIntended) -> None:
        messages = self._rows.requests.whole(record).get("messages") or []
        before, counts = self._asked_last.get((record.path, record.node), ([], Counter[str]()))
        same = len(before)
        if messages[:same] != before:
            same, counts = 0, Counter()
        self._asked_last[record.path, record.node] = messages, counts
        for message in _conversation(messages[same:]):
            name = str(message.get("digest") or digest(dict(message)))
            counts[name] += 1
            if counts[name] <= self._seen[name]:
                continue
            self._seen[name] = counts[name]
            if not self._is_shown(message):
                said = {key: value for key, value in message.items() if key != "digest"}
                self._add("message", record, digest=name, message=said)

    def _is_shown(self, message: Mapping[str, Any]) -> bool:
        """Return True for the message of a reply or a result that an entry shows."""
        if message.get("role") == "assistant":
            found, key = self._replies, _reply_key(message.get("content"), message.get("tool_calls"))
            return _taken(found, key)
        if message.get("role") != "tool":
            return False
        return "cleared" in _data(message) or _taken(self._results, str(message.get("name")))

    def _settled(self, record: r.EffectSettled) -> None:
        row = self._rows.by_activation.get(record.activation)
        call = next((one for one in reversed(row.calls) if one.settled is record), None) if row is not None else None
        if call is None:
            return
        if call.intended.kind == "tool":
            self._results[call.intended.name] += 1
        elif isinstance(record.result, Mapping):
            self._replies[_reply_key(record.result.get("text"), record.result.get("tool_calls"))] += 1

    def _asked(self, record: r.Asked) -> None:
        row = self._rows.by_activation.get(record.activation)
        if row is not None and row.asked and row.asked[-1].seq == record.seq:
            self._add("question", record, question=row.asked[-1])

    def _compacted(self, record: r.StepDone) -> None:
        if record.outcome not in _COMPACTED:
            return
        data = [_data(one) for value in record.update.values() for one in _conversation(value)]
        if not data:
            return
        counts = (one.get("summary_of") for one in data)
        count = max((count for count in counts if isinstance(count, int)), default=0)
        self._add("compaction", record, replaced=count or sum("cleared" in one for one in data))

    def _forked(self) -> None:
        """Leave out the calls that the parent had not ended: the fork makes its own."""
        gone = {one.seq for one in self.entries if one.call is not None and one.open}
        for one in self.entries:
            if one.seq in gone and one.kind == "message":
                self._seen[one.digest] -= 1
        self._asked_last.clear()
        kept = [one for one in self.entries if one.seq not in gone]
        self.entries[len(kept) :] = []
        self.entries[:] = [_numbered(one, at) for at, one in enumerate(kept, 1)]

    def _add(self, kind: EntryKind, record: r.ActivationRecord, **parts: Any) -> None:
        place = record.activation, record.path, record.node
        self.entries.append(Entry(len(self.entries) + 1, record.seq, kind, *place, **parts))


def _message_json(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    return {
        "role": _text(message.get("role")),
        "text": _text(message.get("content")),
        "name": _text(message.get("name")),
        "calls": [_asked_json(one) for one in calls] if isinstance(calls, list | tuple) else [],
        "pictures": picture_names(message.get("images")),
    }


def _turn_json(call: JournaledCall) -> dict[str, Any]:
    settled = call.settled
    reply = _mapping(None if settled is None else settled.result)
    extras, finish = _mapping(reply.get("extras")), _text(reply.get("finish"))
    calls = reply.get("tool_calls")
    return _call_json(call) | {
        "model": _text(reply.get("model")) or call.intended.name,
        "text": _text(reply.get("text")),
        "thoughts": next((_text(extras[name]) for name in _REASONING if extras.get(name)), ""),
        "calls": [_asked_json(one) for one in calls] if isinstance(calls, list | tuple) else [],
        "finish": "" if finish in ("stop", "tool_calls") else finish,
        "usage": call.usage.model_dump(mode="json", exclude_defaults=True),
    }


def _tool_json(call: JournaledCall) -> dict[str, Any]:
    result = None if call.settled is None else call.settled.result
    content = result.get("content") if isinstance(result, Mapping) else None
    return _call_json(call) | {
        "tool": call.intended.name,
        "args": call.intended.request.get("args", call.intended.request),
        "result": result.get("output", result) if isinstance(result, Mapping) else result,
        "pictures": picture_names(content),
    }


def _call_json(call: JournaledCall) -> dict[str, Any]:
    return {
        "settled": None if call.settled is None else call.settled.seq,
        "seconds": None if call.ended is None else round(max(0.0, call.ended - call.started), 6),
        "error": call.fault,
        "state": call.state,
    }


def _question_json(asked: AskedQuestion) -> dict[str, Any]:
    question, answer = asked.question, asked.answer
    return {
        "question": question.kind,
        "prompt": question.prompt,
        "call": {name: question.payload[name] for name in ("tool", "args") if name in question.payload},
        "answer": None if answer is None else answer.model_dump(mode="json", exclude_none=True),
        "answered": asked.answered,
        "by": asked.by,
        "policy": asked.policy,
    }


def _asked_json(call: object) -> dict[str, Any]:
    """Return a tool call in a message or a reply: its name and arguments, as text if they are no JSON object."""
    asked = _mapping(call)
    args = asked.get("arguments")
    return {"name": _text(asked.get("name")), "args": _text(asked.get("raw")) if args is None else args}


def picture_names(parts: object) -> list[str]:
    """Return the names of the pictures in a message or a result: the address, or type and size of an embedded one."""
    urls = [one.get("url") for one in parts if isinstance(one, Mapping)] if isinstance(parts, list | tuple) else []
    return [_picture_name(url) for url in urls if isinstance(url, str)]


def _picture_name(url: str) -> str:
    if not url.startswith("data:"):
        return url
    kind = url[5:45].partition(";")[0].partition(",")[0]
    return f"{kind}, {len(url) * 3 // 4:,} bytes"


def _numbered(entry: Entry, number: int) -> Entry:
    return entry if entry.number == number else replace(entry, number=number)


def _taken(found: Counter[Any], key: object) -> bool:
    """Take one of those that are counted. Return False if there is none."""
    if not found[key]:
        return False
    found[key] -= 1
    return True


def _reply_key(text: object, calls: object) -> tuple[str, tuple[str, ...]]:
    named = calls if isinstance(calls, list | tuple) else ()
    return str(text or "").strip(), tuple(str(one.get("name")) for one in named if isinstance(one, Mapping))


def _data(message: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _mapping(None if message is None else message.get("data"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _conversation(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a value that is a conversation."""
    found: Sequence[object] = value if isinstance(value, list | tuple) else ()
    return (one for one in found if isinstance(one, Mapping) and "role" in one)
