"""A plan of calls in the form of LLMCompiler (arXiv 2312.04511).

    1. search("Mount Everest")
    2. search("K2")
    Thought: Compare both heights.
    3. subtract($1, $2)
    4. join()
    <END_OF_PLAN>

`$1` stands for the result of task 1. `join()` ends the plan: what comes after it is decided from the results. The calls
are those of a blueprint, and a plan that is written as one is read as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.models.reading import parted
from orchestrator.nodes.plans.blueprint import LONGEST, PlannedCall, read_blueprint, read_items

_MARKS = r"[ \t>*_`+-]{0,12}"
_task = re.compile(
    rf"^{_MARKS}(?:task[ \t]{{0,4}})?\$?(?P<id>[0-9]{{1,3}})[*_`]{{0,3}}[.):=][ \t*_`]{{0,8}}"
    r"(?=[^\W\d][\w.-]{0,64}[ \t]{0,4}[(\[])",
    re.IGNORECASE | re.MULTILINE,
)
"""The number of a task, before the name of its tool."""
_join = re.compile(
    rf"^{_MARKS}(?:(?:task[ \t]{{0,4}})?\$?[0-9]{{1,3}}[*_`]{{0,3}}[.):=][ \t*_`]{{0,8}})?join[ \t]{{0,4}}[(\[]",
    re.IGNORECASE | re.MULTILINE,
)
_thought = re.compile(rf"^{_MARKS}(?:thought|reason|reasoning)[*_`]{{0,3}}[ \t]{{0,4}}:", re.IGNORECASE | re.MULTILINE)
_reference = re.compile(r"\$(?:\{([0-9]{1,3})\}|([0-9]{1,3})(?![0-9]|[.,][0-9]))")
"""A place where a result is inserted. `$1.50` and `$100` are money unless there are so many tasks."""


def read_tasks(text: str) -> list[PlannedCall]:
    """Return the calls of a plan, in the order in which they are written.

    Raises:
        PlanFault: as for `read_blueprint`.
    """
    _, text = parted(text)
    if len(text) > LONGEST:
        return read_blueprint(text)
    end = _join.search(text)
    text = text if end is None else text[: end.start()]
    known = {found["id"].lstrip("0") for found in _task.finditer(text)}
    text = _thought.sub("Plan:", text)
    text = _task.sub(lambda found: f"#E{found['id']} = ", text)
    return read_blueprint(_referring(text, known))


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
        number = (found[1] or found[2]).lstrip("0")
        return f"#E{number}" if number in known else found[0]

    return _reference.sub(written, text)
