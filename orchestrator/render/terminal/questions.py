"""Questions of a run as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from typing_extensions import TypeIs

from orchestrator.kernel.question import parts_of
from orchestrator.render.terminal import texts
from orchestrator.views.call_questions import OutcomeChoice, outcome_choices
from orchestrator.visible import BAR, barred, narrow

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question


_MOST_LINES = 40
"""Lines of a document that are shown."""
_LONGEST_LINE = 240
"""Characters of a line of what is shown as a document."""


def question_text(question: Question) -> str:
    """A question with everything that it shows. Of a tool call: the tool, and exactly its arguments."""
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
        # Long arguments push what stands above them off the screen.
        risk = narrow(str(call.get("risk", "unknown")))
        whole = "as shown" if not _left_out(given) else "of which some lines are not shown"
        last = f"  = a call of {tool}, risk {risk}, with {len(args):,} characters of arguments {whole}"
    if outcomes:
        last = "\n".join(f"  {one.choice:<8}  {_outcome(one)}" for one in outcomes)
    said = ("tool", "args", *(("why",) if outcomes else ()))  # the prompt says why
    lines += [f"  {narrow(name)}  {texts.compact(value)}" for name, value in call.items() if name not in said]
    lines += (
        ["  shown", *(f"    {narrow(name)}  {texts.compact(value)}" for name, value in shown.items())] if shown else []
    )
    if question.choices and not outcomes:
        lines.append(f"  choices  {narrow(', '.join(question.choices))}")
    return "\n".join([*lines, last] if last else lines)


def _outcome(one: OutcomeChoice) -> str:
    """An answer to the question for the outcome of a call: its words, with the value given with it, or its danger."""
    if one.result:
        return f"{one.label} ({one.result})"
    return f"{one.label}. {one.hint}" if one.dangerous else one.label


def _arguments(given: object, compact: str) -> Iterator[str]:
    """The arguments of a call: on one line, or each on its own where one of them is a document of several lines."""
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
    """True if a value is a text of several lines, none of which is so long that spaces could hide the rest of it."""
    return isinstance(value, str) and "\n" in value and all(len(row) <= _LONGEST_LINE for row in value.split("\n"))


def _left_out(given: object) -> bool:
    """True if a document among the arguments is too long to be shown whole."""
    values = given.values() if isinstance(given, Mapping) else ()
    return any(_is_document(value) and value.count("\n") > _MOST_LINES for value in values)
