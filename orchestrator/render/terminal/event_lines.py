"""Events of a run as lines of text, and its questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from typing_extensions import TypeIs

from orchestrator.kernel.question import parts_of, until
from orchestrator.kernel.records import failed_result
from orchestrator.redaction import redacted
from orchestrator.render.terminal import texts
from orchestrator.render.terminal.excerpts import update_text
from orchestrator.views.call_questions import CHOICES, OutcomeChoice, outcome_choices
from orchestrator.views.events import Event
from orchestrator.visible import BAR, barred, narrow

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question


_LINE = 100
"""Cells for the update of a step."""
_FAULT = 300
"""Characters of an error message that a line shows; the command `show` prints all of it."""


class EventLines:
    """Converts the events of one run, in order, to lines."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}

    def text(self, event: Event) -> str | None:
        """Return an event as text; None if it is not shown. Lines after the first have a bar in front."""
        line = self._line(event)
        if line is None:
            return None
        first, *rest = str(redacted(line)).splitlines()
        return "\n".join([first, *(f"  {BAR}{more}" for more in rest)])

    def _line(self, event: Event) -> str | None:
        data = event.data
        place = _place(event)
        match event.type:
            case "run_started":
                return f"{event.run_id} started: {data.get('graph')}"
            case "forked":
                return f"{event.run_id} is a fork of {data.get('parent')}, from its record {data.get('at')} on"
            case "resumed":
                changes = data.get("changes")
                lines = changes if isinstance(changes, list) else []
                return "\n".join(("resumed", *(f"  {line}" for line in lines)))
            case "reopened":
                return (
                    f"reopened{' by ' + str(data['by']) if data.get('by') else ''}: it had ended ({data.get('status')})"
                )
            case "step_done" | "step_failed" | "step_retried":
                return self._ended(event, place)
            case "effect_intended":
                self._calls[str(data.get("key"))] = _call(event)
                return None
            case "effect_settled" if data.get("next_at") is not None and data.get("tries"):
                wait = texts.duration(max(0.0, _number(data.get("next_at")) - _number(data.get("ended"))))
                return f"  {place}: {_fault(data.get('error'))}; tried again in {wait}"
            case "effect_settled":
                return self._settled(event, place)
            case "answered":
                return _answered(event)
            case "progress":
                return f"  {place}: {_so_far(event)}"
            case "emitted":
                return f"  {place}  {data.get('name', '')} {_brief(data.get('data'))}"
            case "limit_spent":
                return f"  the limit {data.get('limit')} is spent"
            case "event_received":
                who = f" by {data['by']}" if data.get("by") else ""
                return f"  event {data.get('name')}{who}  {_brief(data.get('data'))}"
            case "timer_set":
                return f"  {place} waits {until(_number(data.get('at')))}"
            case "timer_fired" if data.get("error"):
                return f"  {_fault(data['error'])}"
            case "paused" | "cancelled":
                why = data.get("reason")
                return f"  {event.type}{' by ' + str(data['by']) if data.get('by') else ''}{f': {why}' if why else ''}"
        return None

    def _ended(self, event: Event, place: str) -> str:
        data = event.data
        took = texts.duration(_number(data.get("ended")) - _number(data.get("started")))
        if event.type == "step_done":
            outcome = data.get("outcome", "done")
            update = data.get("update")
            said = "" if outcome == "done" else f" -> {outcome}"
            if data.get("error"):
                return f"  {place}{said}  {_fault(data['error'])}  ({took})"
            if failed := data.get("failed"):
                said += f"  [{failed} failed call{'' if failed == 1 else 's'}]"
            written = f"  {text}" if (text := _written(update)) else ""
            return f"  {place}{said}{written}  ({took})"
        fault = _fault(data.get("error"))
        if event.type == "step_failed":
            return f"  {place} failed: {fault}  ({took})"
        return f"  {place} failed and is tried again: {fault}  ({took})"

    def _settled(self, event: Event, place: str) -> str | None:
        call = self._calls.pop(str(event.data.get("key")), "")
        if not call:
            return None
        if event.data.get("unknown"):
            return f"  {place}: {call} may or may not have happened"
        fault = failed_result(event.data.get("result")) if event.data.get("ok", True) else None
        if fault is not None:
            return f"  {place}: {call} failed: {texts.short(str(redacted(fault)), _FAULT)}"
        if event.data.get("ok", True):
            return f"  {place}: {call} = {_brief(_output(event.data.get('result')))}"
        return f"  {place}: {call} failed: {_fault(event.data.get('error'))}"


def _place(event: Event) -> str:
    return f"{event.path}/{event.node}" if event.path else event.node


def _call(event: Event) -> str:
    """Describe a tool call; empty for other calls."""
    if event.data.get("kind") != "tool":
        return ""
    request = event.data.get("request")
    args = request.get("args", request) if isinstance(request, dict) else {}
    shown = ", ".join(f"{k}={texts.compact(v)}" for k, v in args.items()) if isinstance(args, dict) else ""
    return texts.short(f"{event.data.get('name')}({redacted(shown)})")


def _so_far(event: Event) -> str:
    """Return the progress of a call, with the last line of its text."""
    data = event.data
    parts = [str(data["tool"])] if data.get("tool") else []
    if data.get("done") is not None:
        parts.append(f"{_number(data['done']):g}" + (f"/{_number(data['total']):g}" if data.get("total") else ""))
    said = str(data.get("text", "")).strip().rpartition("\n")[2]
    return texts.short(" ".join((*parts, str(redacted(said)))).rstrip())


def _answered(event: Event) -> str:
    answer = event.data.get("answer")
    first, *rest = answer_text(answer if isinstance(answer, dict) else {}).split(" ", 1)
    who = "by policy" if event.data.get("policy") else f"by {event.data['by']}" if event.data.get("by") else ""
    said = (_PAST.get(first, first), *(texts.short(str(redacted(more))) for more in rest), who)
    return f"  {' '.join(said)}".rstrip()


_PAST = {"approve": "approved", "deny": "denied", "answer": "answered"}


def answer_text(answer: Mapping[str, object]) -> str:
    """Return an answer, as JSON, on one line: `approve`; `deny`, with its reason; or `answer`, with its value."""
    match answer.get("type"):
        case "value":
            value = answer.get("value")
            if isinstance(value, dict) and value.get("choice") in CHOICES:  # about the outcome of a call
                result = f" {texts.compact(value['result'])}" if "result" in value else ""
                return f"answer {value['choice']}{result}"
            return f"answer {texts.compact(value)}"
        case "deny" if answer.get("reason"):
            return f"deny {texts.compact(answer['reason'])}"
    return str(answer.get("type", "answer"))


def _output(result: object) -> object:
    return result["output"] if isinstance(result, dict) and "output" in result else result


def _brief(value: object) -> str:
    return texts.short(str(redacted(texts.compact(value))))


def _written(update: object) -> str:
    return update_text(update, _LINE) if isinstance(update, dict) and update else ""


def _fault(error: object) -> str:
    if not isinstance(error, dict):
        return "no reason given"
    return texts.short(str(redacted(f"{error.get('type')}: {error.get('message')}")), _FAULT)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


_MOST_LINES = 40
"""Lines of a document that are shown."""
_LONGEST_LINE = 240
"""Longest line in characters of a value that is shown as a document."""


def question_text(question: Question) -> str:
    """Return a question with everything that it shows. For a tool call, this is the tool and its exact arguments."""
    place = "/".join(part for part in (question.path, question.node) if part)
    lines = [narrow(f"{question.kind}{f' at {place}' if place else ''}")]
    if question.prompt:
        lines.append(barred(question.prompt, f"  {BAR}"))
    call, shown = parts_of(question.kind, question.payload)
    outcomes = outcome_choices(question)
    last = ""
    if "tool" in call:
        tool, given = narrow(str(call["tool"])), call.get("args", {})
        args = texts.compact(given)
        lines += [f"  tool  {tool}", *_arguments(given, args)]
        # Long arguments scroll the lines above them off the screen.
        risk = narrow(str(call.get("risk", "unknown")))
        whole = "as shown" if not _left_out(given) else "of which some lines are not shown"
        last = f"  = a call of {tool}, risk {risk}, with {len(args):,} characters of arguments {whole}"
    if outcomes:
        last = "\n".join(f"  {one.choice:<8}  {_outcome(one)}" for one in outcomes)
    said = ("tool", "args", *(("why",) if outcomes else ()))  # the prompt gives the reason
    lines += [f"  {narrow(name)}  {texts.compact(value)}" for name, value in call.items() if name not in said]
    lines += (
        ["  shown", *(f"    {narrow(name)}  {texts.compact(value)}" for name, value in shown.items())] if shown else []
    )
    if question.choices and not outcomes:
        lines.append(f"  choices  {narrow(', '.join(question.choices))}")
    return "\n".join([*lines, last] if last else lines)


def _outcome(one: OutcomeChoice) -> str:
    """Return a possible answer about a call's outcome: its label, with its value, or its hint if it is dangerous."""
    if one.result:
        return f"{one.label} ({one.result})"
    return f"{one.label}. {one.hint}" if one.dangerous else one.label


def _arguments(given: object, compact: str) -> Iterator[str]:
    """Yield the arguments of a call: on one line, or one per line if any of them is a document of several lines."""
    if not isinstance(given, Mapping) or not any(map(_is_document, given.values())):
        yield f"  args  {compact}"
        return
    yield "  args"
    for name, value in given.items():
        if not _is_document(value):
            yield f"    {narrow(str(name))}  {texts.compact(value)}"
            continue
        rows = value.split("\n")
        more = len(rows) - _MOST_LINES
        yield f"    {narrow(str(name))}  {len(rows):,} lines"
        yield barred("\n".join(rows[:_MOST_LINES] if more > 1 else rows), f"      {BAR}")
        if more > 1:
            yield f"      ... {more:,} more lines"


def _is_document(value: object) -> TypeIs[str]:
    """Return True if a value is a text of several lines, none of them so long that spaces could hide its end."""
    return isinstance(value, str) and "\n" in value and all(len(row) <= _LONGEST_LINE for row in value.split("\n"))


def _left_out(given: object) -> bool:
    """Return True if a document among the arguments is too long to be shown in full."""
    values = given.values() if isinstance(given, Mapping) else ()
    return any(_is_document(value) and value.count("\n") > _MOST_LINES for value in values)
