"""A step and its calls as data of a page: plain JSON with secrets redacted and texts bounded.

Other steps are identified by their row numbers. Each message, and each list of tools offered to a model, is included
once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.graph.edges import Edge
from orchestrator.graph.limits import Usage
from orchestrator.graph.model import GraphDefinition
from orchestrator.json import digest, joined_digest
from orchestrator.kernel.question import parts_of
from orchestrator.kernel.records import EffectIntended, failed_result
from orchestrator.kernel.requests import Requests
from orchestrator.redaction import redact, redacted
from orchestrator.render.drawing import Drawing
from orchestrator.views.call_questions import outcome_choices, outcome_title
from orchestrator.views.causes import Causes, Transition, TransitionEdge
from orchestrator.views.explainer import Explainer
from orchestrator.views.history import States
from orchestrator.views.safe_text import BEHIND, plain, told
from orchestrator.views.step_names import MapGroups, step_name
from orchestrator.views.step_work import JournaledCall
from orchestrator.views.timeline import AskedQuestion, Timeline, TimelineRow
from orchestrator.views.tracebacks import trace_data

_NUMBERS = ("up", "base")
"""Fields that name another step: they are included even if they are 0."""


class StepData:
    """Writes steps as plain JSON, without their working time and their calls.

    Args:
        rows: the run's timeline.
        states: the run's states.
        edges: ids of the run's edges.
        maps: the run's maps.
        parts: (place, node) -> id of the node in the picture.
        at: a moment in Unix seconds as milliseconds since the run's start.
    """

    def __init__(
        self,
        rows: Timeline,
        states: States,
        edges: TransitionEdges,
        maps: MapGroups,
        parts: Mapping[tuple[str, str], str],
        at: Callable[[float], int],
        traces: Tracebacks,
    ) -> None:
        self._rows, self._states, self._edges, self._maps = rows, states, edges, maps
        self._parts, self._at, self._traces = parts, at, traces

    def write(self, row: TimelineRow, explainer: Explainer) -> dict[str, Any]:
        """Return the data of a step."""
        why, name = explainer.why(row), step_name(row)
        step: dict[str, Any] = {
            "node": told(row.node, 80),
            "name": [name.what, name.about, name.where],
            "part": self._parts.get((row.place, row.node), ""),
            "began": row.began,
            "t": [self._at(row.started), None if row.ended is None else self._at(row.ended)],
            "status": why.status,
            "came": why.came,
        }
        optional: dict[str, Any] = {
            "path": told(row.path, 200),
            "seq": row.seq,
            "up": row.parent,
            "depth": row.depth,
            "outcome": told(row.outcome, 80),
            "went": why.went,
            "map": self._maps.places.get(row.activation),
            "attempt": row.attempt if row.attempt > 1 else None,
            "failed": row.failed,
            "cached": row.cached or None,
            "unasked": row.unasked,
            "error": told(str(row.error), 2000) if row.error is not None else None,
            "trace": None if row.error is None else self._traces.of(row.error.traceback),
            "retries": [
                [one.attempt, told(str(one.error), 1000), self._traces.of(one.error.traceback)] for one in row.failures
            ],
            "waits": [[w.why, self._at(w.start), None if w.end is None else self._at(w.end)] for w in row.waits],
            "asked": [asked_data(one) for one in row.asked],
            "usage": usage_data(row.usage),
        } | self._edges.of(row)
        state = self._states.steps.get(row.activation)
        if state is not None:
            base = -1 - state.base if isinstance(state.base, int) else self._number(state.base)
            optional |= {"base": base, "merged": clean_patch(state.merged), "patch": clean_patch(state.patch)}
        return step | {
            name: value for name, value in optional.items() if value or (name in _NUMBERS and value is not None)
        }

    def _number(self, activation: str) -> int | None:
        row = self._rows.by_activation.get(activation)
        return None if row is None else row.number


def asked_data(one: AskedQuestion) -> dict[str, object]:
    """Return a question of a step as plain JSON, with its answer."""
    question = one.question
    said: dict[str, object] = {
        "seq": one.seq,
        "kind": question.kind,
        "prompt": clean(question.prompt),
    }
    call, shown = parts_of(question.kind, question.match if question.kind == "event" else question.payload)
    said |= {name: clean(part) for name, part in (("call", call), ("shown", shown)) if part}
    outcomes = outcome_choices(question)
    if outcomes:
        said |= {
            "title": told(outcome_title(question.payload), 80),
            "outcomes": {way.choice: way.label for way in outcomes},
        }
    if one.answer is not None:
        said["answer"] = clean(one.answer.model_dump(mode="json"))
        said |= {"by": "a rule" if one.policy else told(one.by, 80), "answered": one.answered}
    return said


class Tracebacks:
    """Tracebacks of a page as plain JSON: of those behind the first `_ALL_TRACES` characters only the place."""

    def __init__(self) -> None:
        self.left_out = 0
        """Number of different tracebacks that are not there as a whole."""
        self._room = _ALL_TRACES
        self._made: dict[str, dict[str, object] | None] = {}
        """By text: a step is written again when it has changed, and items of a map often fail alike."""

    def of(self, traceback: str) -> dict[str, object] | None:
        """Return a traceback; None if there is none."""
        if traceback not in self._made:
            made = self._made[traceback] = trace_data(traceback)
            if len(traceback) <= self._room:
                self._room -= len(traceback)
            elif made is not None:
                self.left_out += 1
                made |= {"parts": [], "left_out": True}
        return self._made[traceback]


class StepCalls:
    """The calls of one step as plain JSON, with the version in which each changed last."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self._versions: list[int] = []
        self._settled: list[object] = []

    def update(self, calls: list[JournaledCall], data: CallData, version: int) -> bool:
        """Write calls that are new, or have a new result. Return True if there are any."""
        changed = False
        for number, call in enumerate(calls):
            if number < len(self.written):
                if self._settled[number] is call.settled:
                    continue
                self.written[number], self._settled[number] = data.write(call), call.settled
                self._versions[number] = version
            else:
                self.written.append(data.write(call))
                self._settled.append(call.settled)
                self._versions.append(version)
            changed = True
        return changed

    def since(self, version: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of calls that a reader of a version has unchanged, and the calls after those."""
        first = next((at for at, changed in enumerate(self._versions) if changed > version), len(self.written))
        return first, self.written[first:]


LONGEST = 50_000
"""Maximum number of characters of a text in a page."""
_EXACT = 2**53
"""Larger integers lose digits in a browser."""


def clean(value: object) -> Any:
    """Return plain JSON for a page: secrets redacted, texts bounded, large numbers as text."""
    return _plain(redacted(value, _text))


def clean_patch(patch: Mapping[str, list[object]]) -> dict[str, Any]:
    """Clean a patch like `clean`: the name of a field counts for its new values."""
    found: dict[str, object] = {}
    for name, (kind, value, *rest) in patch.items():
        (said,) = clean({name: value}).values()
        found[name] = [kind, said, *(clean(one) for one in rest)]
    return found


def _text(text: str) -> str:
    if text.startswith("data:") and len(text) > 1000:
        return f"[{told(text[:40].partition(',')[0], 40)}, {len(text):,} characters]"
    if len(text) <= LONGEST:
        return redact(text)
    # Cut first, with enough text to recognize a secret at the cut.
    start = redact(text[: LONGEST + BEHIND])[:LONGEST]
    return f"{start}… [{len(text) - LONGEST:,} characters more]"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -_EXACT <= value <= _EXACT:
        return str(value)
    return value


_ALL_TRACES = 2_000_000
"""Characters of all tracebacks of a page's steps and calls together. The run's own error is always shown."""

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")
_LARGEST = 4_000_000
"""Maximum number of characters of a picture in a page."""
_ALL = 24_000_000
"""Characters of all pictures of a page together; further ones are not shown."""


class CallData:
    """Writes calls as plain JSON.

    Args:
        at: a moment in Unix seconds as milliseconds since the run's start.
        requests: the requests to models in the journal.
        traces: the tracebacks of the page.

    Attributes:
        messages: Digest -> message: each is included once, as in the journal.
        offers: Digest -> tools offered to a model.
    """

    def __init__(self, at: Callable[[float], int], requests: Requests, traces: Tracebacks) -> None:
        self._requests = requests
        self.messages: dict[str, object] = {}
        self.offers: dict[str, object] = {}
        self._at = at
        self._room = _ALL
        self._traces = traces
        self.replaced: dict[int, object] = {}
        """Record of a call in place of which a fork makes another one -> the reply that it had; None: none."""
        self._names: dict[str, str] = {}
        """Key of a call's record -> its name, for nested calls."""
        self._requests_of: dict[tuple[str, str], tuple[int, list[Any]]] = {}
        """Path and node -> record and messages of its newest call of a model."""
        self._conversations: dict[int, dict[str, Any]] = {}
        """Record of a call of a model -> its messages as written: they do not change when the call ends."""

    def write(self, call: JournaledCall) -> dict[str, Any]:
        """Return the data of a call with its request and its result."""
        asked = call.intended
        said = self._begun(call)
        if asked.kind == "model":
            request = self._requests.whole(asked)
            said |= self._conversation(asked, [*_list(request.pop("messages", ()))])
            offered = _list(request.pop("tools", ()))
            if offered:
                name = joined_digest(offered)[:12]
                if name not in self.offers:
                    self.offers[name] = clean(offered)
                said["offer"] = name
            said["options"] = clean({key: value for key, value in request.items() if value not in (None, {}, [])})
        if asked.seq in self.replaced and call.settled is None:
            said |= {"replaced": True, "instead": clean(self.replaced[asked.seq])}
        return _without_empty(said | self._ended(call))

    def brief(self, call: JournaledCall) -> dict[str, Any]:
        """Return the data of a call as a transcript shows it: without what the model was sent."""
        return _without_empty(self._begun(call) | self._ended(call))

    def _begun(self, call: JournaledCall) -> dict[str, Any]:
        asked = call.intended
        said: dict[str, Any] = {
            "kind": asked.kind,
            "name": told(asked.name, 120),
            "seq": asked.seq,
            "effect": asked.effect,
            "t": [self._at(call.started), None if call.ended is None else self._at(call.ended)],
        }
        self._names[asked.key] = said["name"]
        if asked.inside:
            said["inside"] = self._names.get(asked.inside, "a call")
        if asked.kind != "model":
            said["args"] = clean(asked.request.get("args", asked.request))
        return said

    def _ended(self, call: JournaledCall) -> dict[str, Any]:
        asked, settled = call.intended, call.settled
        if settled is None:
            return {}
        said: dict[str, Any] = {"settled": settled.seq, "ok": settled.ok}
        if asked.kind == "tool" and settled.ok and failed_result(settled.result) is not None:
            said["failed"] = True
        trace = "" if settled.error is None else settled.error.traceback
        if settled.result is not None:
            result = settled.result
            if isinstance(result, Mapping) and isinstance(result.get("traceback"), str):
                trace = trace or result["traceback"]
                result = {key: value for key, value in result.items() if key != "traceback"}
            said["result"] = clean(result)
            said["images"] = self._pictures(settled.result)
        if settled.error is not None:
            said["error"] = told(str(settled.error), 2000)
        if trace:
            said["trace"] = self._traces.of(trace)
        if settled.tries != 1:
            said["tries"] = settled.tries
        if settled.unknown and not settled.secret:
            said["unknown"] = True
        if settled.usage is not None:
            said["usage"] = usage_data(settled.usage)
        return said

    def _pictures(self, result: object) -> list[str]:
        """Return the pictures of a tool's result as data URLs; remote ones are not fetched."""
        content = _list(result.get("content")) if isinstance(result, Mapping) else ()
        urls = (part.get("url") for part in content if isinstance(part, Mapping))
        shown = []
        for url in urls:
            if isinstance(url, str) and len(url) <= min(_LARGEST, self._room) and _PICTURE.fullmatch(url):
                self._room -= len(url)
                shown.append(url)
        return shown

    def _conversation(self, asked: EffectIntended, messages: list[object]) -> dict[str, Any]:
        """Return the names of messages: of a request that continues the one before it only those that follow it."""
        if asked.seq in self._conversations:
            return self._conversations[asked.seq]
        place = asked.path, asked.node
        seq, before = self._requests_of.get(place, (0, []))
        same = len(before) if before and messages[: len(before)] == before else 0
        written: dict[str, Any] = {"messages": [self._message(one) for one in messages[same:]]}
        if same:
            written["behind"] = [seq, same]
        self._conversations[asked.seq], self._requests_of[place] = written, (asked.seq, messages)
        return written

    def _message(self, message: object) -> str:
        if not isinstance(message, Mapping):
            return ""
        name = str(message.get("digest") or digest(dict(message)))[:12]
        if name not in self.messages:
            self.messages[name] = message_data(message)
        return name


def message_data(message: Mapping[str, Any]) -> Any:
    """Return a message as plain JSON, without its digest and what is empty."""
    return clean({key: value for key, value in message.items() if key != "digest" and value})


def _without_empty(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value not in ("", [], {}, None)}


def usage_data(usage: Usage) -> dict[str, object]:
    """Return a usage without its zeros."""
    found = {"calls": usage.calls, "in": usage.input_tokens, "out": usage.output_tokens, "cost": usage.cost}
    found |= {"cached": usage.cached_tokens, "saved": usage.cache_savings}
    if usage.estimated:
        found["estimated"] = True
    return {name: value for name, value in found.items() if value}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


class TransitionEdges:
    """Identifies the edges of transitions by the ids of their parts in the picture.

    Args:
        graph: the run's graph, as drawn.
        drawing: its drawing.
        causes: the causes in the run.

    Attributes:
        texts: Id -> text of an edge. Edges that exist only in an earlier version of the graph are named `was-1`,
            `was-2`, ...
    """

    def __init__(self, graph: GraphDefinition, drawing: Drawing, causes: Causes) -> None:
        self._causes = causes
        drawn = {(edge.path, edge.index): edge.id for edge in drawing.edges}
        self._ids: dict[tuple[str, Edge], str] = {}
        self.texts: dict[str, str] = {}
        for path, index, edge in _edges(graph):
            if (path, index) in drawn:
                name = self._ids[path, edge] = drawn[path, index]
                self.texts[name] = plain(str(edge), 200)

    def of(self, row: TimelineRow) -> dict[str, object]:
        """Return the ids of the edges that a step took and did not take, and the values of guards."""
        took = self._causes.transitions.get(row.activation)
        if took is None:
            return {}
        guards = {
            plain(name, 80): value if isinstance(value, bool) else told(value, 200)
            for name, value in row.guards.items()
        }
        return {
            "took": [self._id(took, way) for way in took.taken],
            "left": [self._id(took, way) for way in took.not_taken],
            "guards": guards,
        }

    def beginnings(self) -> Mapping[str, list[int]]:
        """Id of an edge -> the records that took it without a step: start of a graph, or a spent limit."""
        found: dict[str, list[int]] = {}
        rows = (took for took in self._causes.transitions.values() if took.node in ("START", "*"))
        for took in rows:
            for way in took.taken:
                found.setdefault(self._id(took, way), []).append(took.seq)
        return found

    def _id(self, took: Transition, way: TransitionEdge) -> str:
        key = took.place, way.edge
        name = self._ids.get(key)
        if name is None:
            name = self._ids[key] = f"was-{len(self.texts) + 1}"
            self.texts[name] = plain(str(way.edge), 200)
        return name


def _edges(graph: GraphDefinition, path: str = "") -> Iterator[tuple[str, int, Edge]]:
    for index, edge in enumerate(graph.edges):
        yield path, index, edge
    for name, node in graph.nodes.items():
        if node.subgraph is not None:
            yield from _edges(node.subgraph, f"{path}/{name}" if path else name)
