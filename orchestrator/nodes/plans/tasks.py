"""A plan of calls in the form of LLMCompiler (arXiv 2312.04511).

    1. search("Mount Everest")
    2. search("K2")
    Thought: Compare both heights.
    3. subtract($1, $2)
    4. join()
    <END_OF_PLAN>

`$1` stands for the result of task 1. `join()` ends the plan: what comes after it is decided from the results. The calls
are those of a blueprint, and a plan that is written as one is read as one. Tasks may stand on one line, and have words
before their calls (`2. Search again: search("K2")`). A numbered line before `join` that is no call is a fault, and so
is a number that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from orchestrator.nodes.plans.blueprint import (
    MOST_CALLS,
    NAME,
    PlannedCall,
    calls_in,
    checked,
    is_blueprint,
    read_blueprint,
    read_items,
    up_to_end,
)

_MARKS = r"[ \t>*_`+-]{0,12}"
_NUMBER = (
    r"(?:(?:task|step|call|action)[ \t]{{0,4}}\#?)?[(\[]?\$?(?P<{}>[0-9]{{1,3}})"
    r"(?:[*_`]{{0,3}}[ \t]{{0,2}}[.):=\]](?![0-9])|[ \t][-–—](?=[ \t]))[ \t*_`:=]{{0,8}}"
)
_ABOUT = r"(?:[^\W\d][^:\n(\[]{0,80}:[ \t]{1,4})?"
"""Words before a call: `2. Search again: search("b")`."""
_CALLED = rf"(?=[*`]{{0,3}}{NAME}[ \t]{{0,4}}[*`]{{0,3}}[(\[])"
_LATER = r"(?<=[\s;,.)\]])\$?(?P<{}>[0-9]{{1,3}})[.):][ \t]{{1,4}}"
_LABEL = r"(?:thought|reason|reasoning|plan)[*_`]{0,3}[ \t]{0,4}:"

_head = re.compile(
    rf"^{_MARKS}(?:(?P<plan>(?:{_NUMBER.format('thought')})?{_LABEL})"
    rf"|{_NUMBER.format('first')}(?:{_ABOUT}{_CALLED})?)|{_LATER.format('later')}{_CALLED}",
    re.IGNORECASE | re.MULTILINE,
)
"""Start of a thought or a task: a number at the start of a line, or before a call within a line."""
_limit = re.compile(rf"^{_MARKS}(?:{_NUMBER.format('number')}{_CALLED}|{_LABEL})", re.IGNORECASE | re.MULTILINE)
"""A line that is not part of the input before it. Other numbered lines may be."""
_join = re.compile(
    rf"(?:^{_MARKS}(?:{_NUMBER.format('number')}{_ABOUT})?[*`]{{0,3}}|{_LATER.format('later')}[*`]{{0,3}})"
    r"join[*`]{0,3}[ \t]{0,4}(?:[(\[]|[.;]?[ \t*`]{0,4}$)",
    re.IGNORECASE | re.MULTILINE,
)
_quoted = re.compile(rf"({NAME})[ \t]{{1,4}}(\"[^\"]*+\"|'[^']*+')[.;]?")
"""A call without brackets: `search "b"`."""
_reference = re.compile(r"\$(?:\{([0-9]{1,3})\}|([0-9]{1,3})(?![0-9]|[.,][0-9]))")
"""A place where a result is inserted. `$1.50` and `$100` are money unless there are so many tasks."""


def read_tasks(text: str) -> list[PlannedCall]:
    """Return the calls of a plan, in the order in which they are written.

    Raises:
        PlanFault: as for `read_blueprint`.
    """
    text = up_to_end(text)
    end = _join.search(text)
    text = text if end is None else text[: end.start()]
    if is_blueprint(text):
        return read_blueprint(text)
    broken: dict[str, str] = {}
    calls = list(islice(calls_in(text, broken, head=_head, limit=_limit), MOST_CALLS + 1))
    ids = {*(call.id for call in calls), *broken}
    known = {name[1:] for name in ids}
    found: list[PlannedCall] = []
    for call in calls:
        quoted = None if call.tool else _quoted.fullmatch(call.input)
        tool, given = (quoted[1], quoted[2]) if quoted else (call.tool, call.input)
        if not tool:
            broken[call.id] = "is not a call: write the name of a tool, and its input in brackets"
            continue
        parts = {"tool": tool, "input": _referring(given, known), "thought": _referring(call.thought, known)}
        found.append(call.model_copy(update=parts))
    numbers = {int(name[1:]) for name in ids} | {
        int(head["thought"]) for head in _head.finditer(text) if head["thought"]
    }
    last = {int(end["number"] or end["later"])} if end and (end["number"] or end["later"]) else set[int]()
    missing = {*range(min(numbers), max(numbers | last))} - numbers if numbers else set[int]()
    broken |= {f"E{number}": "is missing: number all calls, without gaps" for number in sorted(missing)}
    return checked(found, broken)


def read_task_items(items: Sequence[object]) -> list[PlannedCall]:
    """Return the calls of a plan in JSON, see `read_items`; one of `join` is left out.

    Raises:
        PlanFault: as for `read_items`.
    """
    kept = [item for item in items if not (isinstance(item, Mapping) and str(item.get("tool")).lower() == "join")]
    known = {str(number) for number in range(1, len(kept) + 1)}
    return read_items([_converted(item, known) for item in kept])


def _converted(item: object, known: set[str]) -> object:
    if isinstance(item, str):
        return _referring(item, known)
    if isinstance(item, Mapping):
        return {key: _converted(value, known) for key, value in item.items()}
    return [_converted(one, known) for one in item] if isinstance(item, list) else item


def _referring(text: str, known: set[str]) -> str:
    """Return a text with the references to known tasks in the form of a blueprint."""

    def written(found: re.Match[str]) -> str:
        number = (found[1] or found[2]).lstrip("0") or "0"
        return f"#E{number}" if number in known else found[0]

    return _reference.sub(written, text)
