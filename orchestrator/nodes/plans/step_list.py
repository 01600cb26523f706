"""A plan of steps: a list in any of the forms in which models write lists.

    Plan:
    1. Multiply 2 by 4.
    2. Add the result to 20. <END_OF_PLAN>

The first marker determines the marker of all the plan's steps: `Step 1:`, a number (`1.`, `1)`, `(1)`, `1、`) or a
bullet. Other markers, and deeper ones, are part of the steps. The plan ends where the numbers start again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from orchestrator.models.reading import parted
from orchestrator.nodes.plans import PlanFault

END_OF_PLAN = "<END_OF_PLAN>"
"""The end mark of a plan; text after it is ignored."""
NO_STEPS = "it has no steps"
MOST_STEPS = 300
"""Maximum number of steps of a plan, unless its reader has another."""
_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_BOLD = r"(?:\*\*|__)"
_LEAD = rf"(?:(?P<level>\#+)\s+ | >\s* | [-*+•]\s+)? (?P<bold>{_BOLD})?"

_end = re.compile(
    r"<\s*+/?\s*+end[ _-]?of[ _-]?plan\s*+/?\s*+>|^[^\w\n]*+END_OF_PLAN[^\w\n]*+$", re.IGNORECASE | re.MULTILINE
)
_title = re.compile(rf"\s*+(?:\#++\s++plan\b\s*:? | {_BOLD}?plan{_BOLD}?\s*:){_BOLD}?", re.IGNORECASE | re.VERBOSE)
_heading = re.compile(r"(#+)\s")
_fence = re.compile(r"\s*(?:```|~~~)")
_rule = re.compile(r"\s*[-*_=]{3,}\s*\Z")
_step = re.compile(
    rf"""{_LEAD} step \s* \#? (?P<number>[0-9]{{1,4}} | {"|".join(_WORDS)})\b
    (?P<closed>{_BOLD})? \s* (?: [.:)\]：、](?![\d.]) | [-–—](?=\s) | $ ) (?P<late>{_BOLD})?""",
    re.VERBOSE | re.IGNORECASE,
)
_number = re.compile(
    rf"{_LEAD} [(（\[]? (?P<number>[0-9]{{1,4}}) [.)\]:：、．）]{{1,2}} (?![\d.]) (?P<closed>{_BOLD}(?=\s|$))?",
    re.VERBOSE,
)
_bullet = re.compile(r"[-*+•◦▪–—](?:\s*\[[ xX]?\])?(?=\s|$)")
_space = re.compile(r"\s*+")
_sentence = re.compile(r"[.!?。！？][\"'”’)*_`]*\Z")

_BEFORE_NUMBERS = (
    "by to from of with and or is are than for at in on into the times plus minus equals number section chapter step "
    "part page line table figure version level question item option least most about exactly only"
)
_NOT_AFTER = r"(?<=[^\s=+*/×÷<>-])" + "".join(rf"(?<!\b{word})" for word in _BEFORE_NUMBERS.split())
"""Not after a word or a sign whose number it is, as in `Multiply 20 by 2. Add 3.`"""

_Kind: TypeAlias = Literal["step", "number", "bullet"]


@dataclass(frozen=True, slots=True)
class _StepMark:
    """A line that starts with a marker."""

    kind: _Kind
    text: str
    number: int = 0
    level: int = 0
    """Level of a Markdown heading."""


@dataclass(slots=True)
class _Draft:
    """A step while it is read: the lines with its marker, and paragraphs after them that may not belong to it."""

    lines: list[str]
    paragraphs: list[list[str]] = field(default_factory=list)

    @property
    def last(self) -> list[str]:
        return self.paragraphs[-1] if self.paragraphs else self.lines

    def text(self, paragraphs: int) -> str:
        return "\n".join(line for part in [self.lines, *self.paragraphs[:paragraphs]] for line in part if line)


def read_steps(text: str) -> list[str]:
    """Return the steps of a plan, without their markers, each with the lines that belong to it.

    A paragraph after a step belongs to it if another step follows. After the last step it does so only if earlier steps
    have such paragraphs as well; otherwise it sums up the plan.

    Raises:
        PlanFault: there are no steps, or far too many on one line.
    """
    _, text = parted(text)
    end = _end.search(text)
    lines = (text if end is None else text[: end.start()]).expandtabs(4).splitlines()
    for part in _parts(lines):
        drafts = _drafts(part)
        most = max((len(draft.paragraphs) for draft in drafts[:-1]), default=0)
        steps = [step for draft in drafts if (step := draft.text(most))]
        if steps:
            return steps
    raise PlanFault(NO_STEPS)


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the parts that may contain the plan: after its title, else anywhere."""
    for number, line in enumerate(lines, 1):
        title = _title.match(line)
        if title is not None:
            yield [line[title.end() :].strip(), *lines[number:]]
            break
    yield list(lines)


def _drafts(lines: Sequence[str]) -> list[_Draft]:
    reader = _StepReader()
    fences = sum(_fence.match(line) is not None for line in lines)
    for line in lines:
        if _fence.match(line):
            fences -= 1
            going_on = reader.fence(line.strip(), closed=fences > 0)
        else:
            going_on = reader.read(line)
        if not going_on:
            break
    return reader.drafts if len(reader.drafts) != 1 else _in_one_line(reader)


class _StepReader:
    """Reads the lines and keeps track of the form of the plan."""

    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self.first: _StepMark | None = None
        self.indent = 0
        """Indent of the first marker."""
        self.number = 0
        """Number of the last step."""
        self.inner = False
        """True if a list inside the last step has started."""
        self.blank = False
        """True if the previous line was empty."""
        self.wrapped = False
        """True if the whole plan is inside a fence."""
        self.code = False
        """True inside a fence within a step."""

    def read(self, line: str) -> bool:
        """Read one line; return False if the plan ends before it."""
        if self.code:
            self.drafts[-1].last.append(line.rstrip())
            return True
        words = line.strip()
        if not words or _rule.match(line):
            self.blank = True
            return True
        mark, indent = _mark(words), len(line) - len(line.lstrip())
        if self.first is None:
            if mark is None:
                return True
            self.first, self.indent = mark, indent
            going_on = self._begin(mark)
        elif mark is None or not self._counts(mark, indent):
            going_on = self._go_on(words, indent, marked=mark is not None)
        elif mark.kind == "bullet" or self.number < mark.number or self._lazy(mark):
            going_on = self._begin(mark)
        else:
            return False
        self.blank = False
        return going_on

    def fence(self, line: str, *, closed: bool) -> bool:
        """Read a line that opens or closes a fence; return False if the plan ends before it."""
        if not self.drafts:
            self.wrapped = not self.wrapped
        elif self.code or (closed and not self.wrapped):
            self.code = not self.code
            self.drafts[-1].last.append(line)
        return not (self.drafts and self.wrapped)

    def _begin(self, mark: _StepMark) -> bool:
        self.drafts.append(_Draft([mark.text]))
        self.number, self.inner = mark.number, False
        return True

    def _counts(self, mark: _StepMark, indent: int) -> bool:
        """Return True if a marker belongs to the plan, and not to a list or a sentence inside a step."""
        assert self.first is not None
        if mark.kind != self.first.kind:
            return False
        deeper = indent > self.indent + 1
        if mark.kind == "bullet":
            return not deeper
        if deeper and (self.inner or mark.number != self.number + 1):
            self.inner = True
            return False
        return mark.number <= self.number + 2  # one may be missing; `20. ` may end a sentence

    def _lazy(self, mark: _StepMark) -> bool:
        """Return True if all steps have the same number, as Markdown allows."""
        assert self.first is not None
        return mark.number == self.number == self.first.number and not self.drafts[-1].paragraphs

    def _go_on(self, words: str, indent: int, *, marked: bool) -> bool:
        """Read a line that does not start a step. Return False if the list has ended before it."""
        assert self.first is not None
        heading = _heading.match(words)
        if heading is not None and (not self.first.level or len(heading[1]) <= self.first.level):
            return False
        draft = self.drafts[-1]
        if indent <= self.indent and any(draft.lines):
            if self.first.kind == "bullet" and self.blank and words.endswith(":"):
                return False  # the title of another list
            sentence = not marked and not draft.paragraphs and _sentence.search(draft.lines[-1]) and words[0].isupper()
            if self.blank or sentence:
                draft.paragraphs.append([])
        draft.last.append(words)
        return True


def _mark(words: str) -> _StepMark | None:
    for kind, pattern in (("step", _step), ("number", _number)):
        match = pattern.match(words)
        if match is None:
            continue
        said, text = match["number"].lower(), words[match.end() :].strip()
        if match["bold"] and not match["closed"] and not match.groupdict().get("late"):
            text = text.replace(match["bold"], "", 1)  # the whole title is bold
        number = int(said) if said.isdigit() else _WORDS.index(said) + 1
        if kind == "step":
            return _StepMark("step", _unlabelled(text), number, len(match["level"] or ""))
        return _StepMark("number", _unlabelled(text), number)
    match = _bullet.match(words)
    return None if match is None else _StepMark("bullet", _unlabelled(words[match.end() :]))


def _unlabelled(text: str) -> str:
    """Return the text of a step with two markers: `1. Step 1: ...`"""
    text = text.strip()
    begin = 0  # advances a position instead of cutting the text each time, which would take quadratic time
    while label := _step.match(text, begin):
        begin = _behind_space(text, label.end())
    return text[begin:]


def _behind_space(text: str, begin: int) -> int:
    """Return the position of the next character that is not a space."""
    space = _space.match(text, begin)
    assert space is not None
    return space.end()


def _in_one_line(reader: _StepReader) -> list[_Draft]:
    """Return the steps of a plan that is written on one line: `1. Multiply. 2. Add.`"""
    (draft,), first = reader.drafts, reader.first
    if first is None or first.kind == "bullet":
        return [draft]
    found: list[str] = []
    line, begin, number = draft.lines[0], 0, first.number + 1
    while match := _next(first.kind, number).search(line, begin):
        if len(found) == MOST_STEPS:  # each step has a pattern of its own
            raise PlanFault(f"it has more than {MOST_STEPS} steps on one line: plan fewer")
        found.append(line[begin : match.start()].strip())
        begin, number = _behind_space(line, match.end()), number + 1
    return [*(_Draft([text]) for text in found), _Draft([line[begin:].strip(), *draft.lines[1:]], draft.paragraphs)]


def _next(kind: _Kind, number: int) -> re.Pattern[str]:
    """Return the pattern before a step within a line. A number with a full stop may also end a sentence."""
    if kind == "step":
        return re.compile(rf"\s+step\s*{number}\s*[.:)]\s", re.IGNORECASE)
    return re.compile(rf"(?<=[.;,!?])\s+{number}\.\s|\s\(?{number}\)\s|{_NOT_AFTER}\s+{number}\.\s+(?=[A-Z\"“(])")
