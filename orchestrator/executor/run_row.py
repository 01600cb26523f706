"""What the store's row of a run says, computed from the folded run: for lists, which need no journal then."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter

from orchestrator.graph.limits import Usage
from orchestrator.jsontypes import canonical, storable
from orchestrator.kernel.lineage import Parent
from orchestrator.kernel.queries import first_question
from orchestrator.kernel.records import Ended
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.totals import Tally
from orchestrator.stores.base import RunInfo, RunSummary
from orchestrator.stores.rows import MAX_TEXT, OpenQuestion, RunTotals, Total

_LONGEST_WORD = 300
"""Characters of a word that may be left out where a text is cut."""


def summary_of(machine: RunState) -> RunSummary:
    """What lists show of a run."""
    ended = machine.ended
    question = first_question(machine)
    return RunSummary(
        error=short_text(str(ended.error)) if ended is not None and ended.error is not None else "",
        input=_input_of(machine),
        output="" if ended is None else _output_of(ended),
        question="" if question is None else short_text(question.prompt or question.kind),
        usage=(usage := machine.own_usage),
        steps=usage.steps,
    )


def row_of(machine: RunState, *, structure: str, content: str, calling: RunState | None = None) -> RunInfo:
    """The row of a run that is added to a store.

    Args:
        machine: the run, folded over the records that are added with the row.
        structure: digest of the graph of its first record.
        content: likewise.
        calling: the run that called this one's graph as a tool, if it is at hand.
    """
    summary = summary_of(machine)
    return RunInfo(
        machine.run_id, machine.plan.name, machine.status, machine.labels, machine.created, machine.updated,
        machine.head, structure, content, due_of(machine), len(machine.questions), summary.error, summary.input,
        summary.output, summary.question, summary.usage, summary.steps, parent_of(machine, calling),
        totals=totals_of(machine, summary.usage), questions=questions_of(machine),
    )  # fmt: skip


def totals_of(machine: RunState, used: Usage | None = None) -> RunTotals:
    """What a run has spent, by node and by what its nodes called. `used`: its own usage, if that is at hand."""
    found = sorted(machine.totals.tallies.items())
    seconds = (used or machine.own_usage).seconds
    return RunTotals(tuple([Total(*place, *_counts(tally)) for place, tally in found]), seconds)


_counts = attrgetter(*(one.name for one in fields(Tally)))


def questions_of(machine: RunState) -> tuple[OpenQuestion, ...]:
    """The open questions of a run."""
    found = [
        OpenQuestion(name, machine.asked.get(name, machine.updated), one.kind, one.model_dump(mode="json"))
        for name, one in machine.questions.items()
    ]
    return tuple(sorted(found, key=lambda one: (one.asked, one.id)))


def due_of(machine: RunState) -> float | None:
    """When the next deadline of an open question is, Unix seconds, if the run waits for it; None while steps run.

    A fork that is not started does not wait for it.
    """
    if not machine.questions or machine.status != "paused" or machine.is_held:
        return None
    return min((q.deadline for q in machine.questions.values() if q.deadline is not None), default=None)


def _input_of(machine: RunState) -> str:
    started = machine.started
    if started is None:
        return ""
    graph = machine.plan.graph
    fields = None if graph is None else graph.input
    if isinstance(fields, str):
        return short_text(started.values.get(fields))
    if fields:
        return short_text({name: started.values.get(name) for name in fields})
    return short_text(started.values)


def _output_of(ended: Ended) -> str:
    return short_text(ended.output)


def short_text(value: object) -> str:
    """A value as text, a string as it is and anything else as JSON; cut to what a row holds."""
    if value is None:
        return ""
    # Twice as many characters: half pairs of surrogates become one.
    value, _ = _beginning(value, 2 * MAX_TEXT + 2)
    text = storable(value if isinstance(value, str) else canonical(value))
    if len(text) <= MAX_TEXT:
        return text
    kept = text[: MAX_TEXT - 1]
    # The last word goes as a whole: half of a secret is not recognised by the patterns that redact it.
    words, _, last = kept.rpartition(" ")
    return f"{words if words and len(last) <= _LONGEST_WORD else kept}…"


def _beginning(value: object, room: int) -> tuple[object, int]:
    """The part of a JSON value that the first characters of its text come from, however large it is.

    Args:
        value: the value.
        room: how many characters.

    Returns:
        The part, and how many characters are left behind it.
    """
    if isinstance(value, str):
        return value[:room], room - len(value)
    if not isinstance(value, dict | list):
        return value, room - 1
    if isinstance(value, list):
        first = value[: max(0, room)]
        if _SHORT.issuperset(map(type, first)):  # as below, for all items at once
            return first, room - len(first)
    names = sorted(value) if isinstance(value, dict) else range(len(value))
    parts: list[object] = []
    for name in names:
        if room <= 0:
            break
        part: object = value[name]
        room -= len(name) + 1 if isinstance(name, str) else 1
        if isinstance(part, dict | list | str):
            part, room = _beginning(part, room)
        parts.append(part)
    return (dict(zip(names, parts, strict=False)) if isinstance(value, dict) else parts), room


_SHORT = frozenset({int, float, bool, type(None)})
"""Types of values that count as one character."""


def parent_of(machine: RunState, calling: RunState | None) -> Parent | None:
    """The run from which a run began: as a fork or replay, or by a call of its graph as a tool.

    Args:
        machine: the run.
        calling: the calling run, if it is at hand.
    """
    fork, caller = machine.fork, machine.caller
    if fork is not None:
        return Parent(fork.parent, fork.at, fork.relation)
    if caller is None:
        return None
    entry = None if calling is None else calling.ledger.entry(caller.key)
    return Parent(caller.run_id, 0 if entry is None else entry.intended.seq, "call")
