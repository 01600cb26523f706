"""Scorers: what an answer, or the way to it, is worth.

A scorer is a function of a `Case`, sync or async, that returns a `Verdict`, a bool, or a number from 0 to 1. The
shipped ones have names: `exact`, `contains`, `number` and `json` compare the answer; `calls`, `order`, `arguments`
and `confirmations` look at the tools that the run called.
"""

from __future__ import annotations

import inspect
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.errors import GraphUnknown, InvalidValue, OrchestratorError
from orchestrator.evaluation.data import Row
from orchestrator.json import canonical, json_text
from orchestrator.kernel.question import Approve
from orchestrator.kernel.records import Answered, Asked, EffectIntended, EffectSettled, Record, failed_result
from orchestrator.models.reading import NoReading, json_in, parted, unfenced
from orchestrator.nodes.extract import last_number as last_number_in
from orchestrator.spelling import did_you_mean

if TYPE_CHECKING:
    from orchestrator.executor import Run

LABEL = "evaluation"
"""Label of all runs of an evaluation, with its name; other labels begin with it: `evaluation.row`."""
AUTHOR = "orchestrator eval"
"""Author of the notes with scores."""
_RELATIVE = 1e-9
"""Relative difference up to which two numbers are equal."""
_READ = 2000
"""Characters from the end of an answer in which a number is looked for."""
_AROUND = "$€£%.,;:!?()[]{}*`'\"#<>|"
_PASSED = 0.5
_YES, _NO = (
    ("yes", "correct", "right", "true", "pass", "passed"),
    ("no", "incorrect", "wrong", "false", "fail", "failed"),
)


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call of a tool that a run made."""

    tool: str
    args: Mapping[str, object]
    failed: bool = False
    """True if it failed, or has no result."""
    approved: bool = False
    """True if a person approved this very call before it was made."""


@dataclass(frozen=True)
class Case:
    """What a scorer sees: a row, and the run for it."""

    row: Row
    run: Run
    calls: tuple[MadeCall, ...] = ()
    """Calls of tools, in the order in which they began."""

    @property
    def answer(self) -> object:
        """The run's output, as plain JSON."""
        return self.run.output

    @property
    def text(self) -> str:
        """The answer as text: a string as it is, anything else as JSON."""
        return text_of(self.answer)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a scorer."""

    score: float
    """From 0 to 1. A row counts as right from 0.5 on."""
    why: str = ""

    @property
    def passed(self) -> bool:
        """True if the row counts as right."""
        return self.score >= _PASSED


Scored: TypeAlias = Verdict | bool | float
ScoreFunction: TypeAlias = Callable[[Case], Scored | Awaitable[Scored]]


@dataclass(frozen=True)
class Scorer:
    """A scorer with its name, as tables show it."""

    name: str
    function: ScoreFunction

    async def score(self, case: Case) -> Verdict:
        """Return the verdict on a case.

        Raises:
            InvalidValue: the function failed, or returned something else than a verdict, or a number outside of 0 to 1.
        """
        try:
            found = self.function(case)
            if inspect.isawaitable(found):
                found = await found
        except OrchestratorError:
            raise
        except Exception as error:
            fault = f"scorer {self.name!r} failed at row {case.row.key!r}, run {case.run.run_id}"
            raise InvalidValue(f"{fault}: {type(error).__name__}: {error}", where="scorers") from error
        verdict = found if isinstance(found, Verdict) else Verdict(_number_of(found, self.name))
        if not 0 <= verdict.score <= 1:
            raise InvalidValue(f"scorer {self.name!r} gave {verdict.score!r}: a score is a number from 0 to 1")
        return verdict


def _number_of(found: object, name: str) -> float:
    if isinstance(found, bool | int | float):
        return float(found)
    raise InvalidValue(f"scorer {name!r} returned a {type(found).__name__}: return a Verdict, a bool or a number")


def scorer_of(given: str | ScoreFunction | Scorer) -> Scorer:
    """Return a scorer by its name, or one made of a function.

    Raises:
        GraphUnknown: there is no scorer with this name.
    """
    if isinstance(given, Scorer):
        return given
    if not isinstance(given, str):
        return Scorer(getattr(given, "__name__", type(given).__name__), given)
    if given not in SCORERS:
        known = ", ".join(SCORERS)
        raise GraphUnknown(
            f"scorer {given!r} is unknown{did_you_mean(given, SCORERS) or ';'} there are {known}, judge:GRAPH and "
            "module:attr"
        )
    return Scorer(given, SCORERS[given])


def text_of(value: object) -> str:
    """Return an answer as text."""
    return value if isinstance(value, str) else "" if value is None else json_text(value)


def trajectory(records: Sequence[Record]) -> tuple[MadeCall, ...]:
    """Return the calls of tools in the records of a run, in order, each with whether a person approved it."""
    asked: dict[str, tuple[str, object]] = {}
    approved: Counter[str] = Counter()
    begun: dict[str, MadeCall] = {}
    for record in records:
        if isinstance(record, Asked) and "tool" in record.question.payload:
            payload = record.question.payload
            asked[record.question.id] = str(payload["tool"]), payload.get("args")
        elif isinstance(record, Answered) and isinstance(record.answer, Approve) and not record.policy:
            tool, args = asked.get(record.question, ("", None))
            approved[_call_text(tool, args if record.answer.args is None else record.answer.args)] += 1
        elif isinstance(record, EffectIntended) and record.kind == "tool" and record.key not in begun:
            given = record.request.get("args", record.request)
            call = _call_text(record.name, given)
            args = given if isinstance(given, Mapping) else {}
            begun[record.key] = MadeCall(record.name, args, failed=True, approved=approved[call] > 0)
            approved[call] -= approved[call] > 0
        elif isinstance(record, EffectSettled) and record.key in begun:
            call_made = begun[record.key]
            failed = not record.ok or failed_result(record.result) is not None
            begun[record.key] = MadeCall(call_made.tool, call_made.args, failed, call_made.approved)
    return tuple(begun.values())


def _call_text(tool: str, args: object) -> str:
    return canonical([tool, args])


# -- answers ----------------------------------------------------------------------------------------------------------


def _wanted(row: Row) -> list[object]:
    expected = row.expected
    return [*expected] if isinstance(expected, list | tuple) and not row.recorded else [expected]


def exact(case: Case) -> Verdict:
    """The answer is one of the expected texts, apart from white space at its ends."""
    found = case.text.strip()
    return Verdict(float(any(found == text_of(one).strip() for one in _wanted(case.row))))


def contains(case: Case) -> Verdict:
    """One of the expected texts occurs in the answer; case and the kind of white space make no difference."""
    found = " ".join(case.text.casefold().split())
    return Verdict(float(any(" ".join(text_of(one).casefold().split()) in found for one in _wanted(case.row))))


def number(case: Case) -> Verdict:
    """The last number of the answer is the last number of what is expected, up to a relative difference of 1e-9."""
    found = last_number(case.answer)
    if found is None:
        return Verdict(0.0, "the answer has no number")
    wanted = [one for one in map(last_number, _wanted(case.row)) if one is not None]
    return Verdict(float(any(math.isclose(found, one, rel_tol=_RELATIVE, abs_tol=1e-12) for one in wanted)))


def json_value(case: Case) -> Verdict:
    """The answer is the expected JSON value. It may be a text with one JSON value in it, also in a fence."""
    found, wanted = case.answer, case.row.expected
    if isinstance(wanted, str):
        with suppress(NoReading):  # then it is the text itself
            wanted = json_in(wanted)
    try:
        found = json_in(found) if isinstance(found, str) else found
    except NoReading as why:
        if not isinstance(wanted, str):
            return Verdict(0.0, f"it {why}")
    return Verdict(float(_is_same(found, wanted)))


def _is_same(one: object, other: object) -> bool:
    """Return True if two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one == other


def last_number(value: object) -> float | None:
    """Return the number that an answer announces ("The answer is 28"), else its last one; None if it has none.

    A text is read as `Extract` reads it: see `orchestrator.nodes.extract.last_number`.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e308 else None
    text = text_of(value)
    if len(text) > _READ:  # without its first word, which may be cut
        text = "".join(text[-_READ:].split(None, 1)[1:])
    found = last_number_in(text)
    if found is None:
        return None
    over, _, under = found.partition("/")
    real = float(over) / float(under or 1)
    return real if math.isfinite(real) else None


# -- the way to the answer --------------------------------------------------------------------------------------------


def calls(case: Case) -> Verdict:
    """The run called the expected tools, each as often as expected, in any order."""
    wanted = Counter(one.tool for one in case.row.calls or ())
    made = Counter(one.tool for one in case.calls)
    lacks, more = wanted - made, made - wanted
    why = [f"not called: {', '.join(sorted(lacks))}"] if lacks else []
    why += [f"also called: {', '.join(sorted(more))}"] if more else []
    return Verdict(float(not why), "; ".join(why))


def order(case: Case) -> Verdict:
    """The expected calls were made in this order; others may lie between them."""
    return _in_order(case, with_args=False)


def arguments(case: Case) -> Verdict:
    """The expected calls were made in this order, each with the expected arguments."""
    return _in_order(case, with_args=True)


def confirmations(case: Case) -> Verdict:
    """A person had approved each call of the tools that the row names, before it was made."""
    bare = sorted({one.tool for one in case.calls if one.tool in case.row.confirmed and not one.approved})
    return Verdict(float(not bare), f"called without an approval: {', '.join(bare)}" if bare else "")


def _in_order(case: Case, *, with_args: bool) -> Verdict:
    wanted = case.row.calls or ()
    left = iter(case.calls)
    for place, one in enumerate(wanted):
        args = one.args or {} if with_args else {}
        if not any(
            made.tool == one.tool and all(_is_same(made.args.get(k, ...), v) for k, v in args.items()) for made in left
        ):
            return Verdict(place / len(wanted) * _PASSED, f"expected call {place + 1}, {one.tool}, was not made")
    return Verdict(1.0)


SCORERS: Mapping[str, ScoreFunction] = {
    "exact": exact,
    "contains": contains,
    "number": number,
    "json": json_value,
    "calls": calls,
    "order": order,
    "arguments": arguments,
    "confirmations": confirmations,
}
"""The shipped scorers, by name."""
OF_CALLS = frozenset({"calls", "order", "arguments"})
"""Scorers that need the field `calls` of a row."""
OF_ANSWERS = frozenset({"exact", "contains", "number", "json"})
"""Scorers that need an expected answer."""


def lacks(scorer: str, row: Row) -> str:
    """Return what a row lacks for a scorer; empty if some answers are right for it, and others wrong."""
    if scorer in OF_ANSWERS and row.expected is None:
        return f"it has no expected answer, which the scorer {scorer!r} needs"
    if scorer in OF_ANSWERS and scorer != "json":
        wanted = _wanted(row)
        if not wanted:
            return f"its list of expected answers is empty, and the scorer {scorer!r} needs one"
        if scorer == "contains" and not all(text_of(one).strip() for one in wanted):
            return "its expected answer is empty, and every answer contains it"
        if scorer == "number" and all(last_number(one) is None for one in wanted):
            return "its expected answer has no number, which the scorer 'number' needs"
    if scorer in OF_CALLS and row.calls is None:
        return f"it has no field 'calls', which the scorer {scorer!r} needs"
    if scorer in ("order", "arguments") and not row.calls:
        return f"it expects no calls, so that the scorer {scorer!r} is always content: use 'calls'"
    if scorer == "confirmations" and not row.confirmed:
        return "it has no field 'confirmed', which the scorer 'confirmations' needs"
    return ""


# -- verdicts of judges -----------------------------------------------------------------------------------------------

_yes_no = "|".join((*_YES, *_NO))
_clause_end = re.compile(r"[.!?:;,\n()—–]|\s-\s")
_lead = re.compile(
    r"(?:(?:so|thus|hence|therefore|overall|but|and|well|i(?: would|['’]d)? (?:say|think|believe)(?: that)?)\b\s*)*+"
)
_alone = re.compile(rf"(?P<not>not\s+)?(?P<word>{_yes_no})(?:\Z|\s+(?:it|this|that|the|because|since|as|they|i)\b)")
"""A clause that is a verdict, or begins with one: "yes", "not correct", "no it is not"."""
_said_of_it = re.compile(
    rf"""\b(?:it|this|that|everything|(?:answer|response|reply|result|solution|statement|verdict|judge?ment)
      (?:\s\S{{1,30}}){{0,2}}?)
    (?: (?:\s+(?:is|was)|['’]s)(?P<negated>n['’]t|\s+not)?
        (?:\s+(?:also|indeed|clearly|completely|definitely|entirely|factually|just|simply))?
        (?:\s+(?:the|a))?\s+(?P<word>{_yes_no})\b(?!\s+(?:or|and)\s+(?:{_yes_no})\b)
      | \s+(?P<fails>(?:does\s+not|doesn['’]t)\s+pass|fails|failed)\b | \s+(?P<passes>passes|passed)\b )""",
    re.VERBOSE,
)
"""A verdict on the answer in a sentence, not one on other things: "the correct answer is 5"."""
_condition = re.compile(r"(?:only )?(?:if|unless|provided|assuming|except)\b")
_doubt = re.compile(
    r"\b(?:if|whether|unless|would (?:be|have)|could|may|might|nearly|almost|partially|partly|partial)\b"
)
_asks = re.compile(
    r"\b(?:verdict|answer|result|judge?ment|evaluation|decision|correct\w*|right|true|pass\w*|grade|label|conclusion"
    r"|assessment|match\w*|accura\w+|equal\w*|same|valid)\b"
)
"""A label or a question to which "yes" is a good verdict."""
_asks_fault = re.compile(r"\b(?:incorrect|wrong|false|fail|failed|faulty)\b")
_score = re.compile(
    r"^[\s*_`\"#>-]{0,9}[\w ]{0,30}\b(?:score|rating|grade|verdict)[\s*_`\"]{0,4}[:=][\s*_`\"]{0,4}"
    r"(\d{1,3}(?:\.\d{1,9})?|\.\d{1,9})(?:\s?/\s?1(?:\.0)?)?[\s*_`\".]{0,4}$",
    re.MULTILINE,
)


def read_verdict(output: object) -> Verdict | None:
    """Return the verdict in the output of a judge; None if it has none, or several that contradict each other.

    A judge gives a bool, a number from 0 to 1, a text that says right or wrong, or an object with one of these under
    `score`, `passed`, `correct` or `verdict`, and perhaps a `reason`. A text says it by a word (`yes`, `not correct`),
    behind a label or a question (`Correctness: no`, `Is it right? No.`), in a sentence (`The answer is incorrect.`), or
    by a score (`Score: 0.9`).
    """
    if isinstance(output, Mapping):
        found = {str(name).casefold(): value for name, value in output.items()}
        why = next((str(found[name]) for name in ("reason", "why") if name in found), "")
        for name in ("score", "passed", "correct", "verdict"):
            if name in found:
                verdict = read_verdict(found[name])
                return None if verdict is None else Verdict(verdict.score, why)
        return None
    if isinstance(output, bool | int | float):
        return Verdict(float(output)) if 0 <= output <= 1 else None
    if not isinstance(output, str):
        return None
    said = parted(output)[1].strip()
    text = said if len(said) <= 2 * _READ else f"{said[:_READ]}\n{said[-_READ:]}"
    with suppress(NoReading):
        value = json_in(text)
        verdict = None if isinstance(value, str) else read_verdict(value)
        if verdict is not None:
            return verdict
    words = unfenced(text).casefold()
    scores = {float(score) for score in _score.findall(words)}
    right = {score >= _PASSED for score in scores} | _said_right(words)
    if len(right) != 1 or len(scores) > 1 or any(score > 1 for score in scores):
        return None
    return Verdict(scores.pop() if scores else float(right.pop()), said[:200])


def _said_right(text: str) -> set[bool]:
    """Return whether the answer is right, for each time that a text says so."""
    found, sentence = set[bool](), set[bool]()
    asked, mark, labelled = "", "", set[bool]()
    """The label or question before a clause, the mark behind it, and the verdict that a label itself may be."""
    begin, conditional = 0, False
    for end in [*_clause_end.finditer(text), None]:
        stop, after, sign = (end.start(), end.end(), end[0]) if end else (len(text), len(text), ".")
        clause, begin = _lead.sub("", text[begin:stop].strip(_AROUND + " \t“”‘’"), count=1), after
        if clause:
            conditional = conditional or _condition.match(clause) is not None
            alone = None if _doubt.search(clause) else _alone.match(clause)
            verdict = _answered(alone, asked, mark) if alone else set[bool]()
            if not alone:
                sentence |= labelled
            if sign != "?" and not _doubt.search(clause):
                sentence |= {_is_right(said) for said in _said_of_it.finditer(clause)}
            asked, mark = (clause, sign) if sign in ":?" else ("", "")
            labelled = verdict if sign == ":" else set()
            sentence |= verdict if sign not in ":?" else set()
        if sign in ".!?;\n":
            found |= set() if conditional else sentence
            sentence, conditional = set(), False
    return found | labelled


def _is_right(said: re.Match[str]) -> bool:
    if said["word"]:
        return (said["word"] in _YES) is not bool(said["negated"])
    return bool(said["passes"])


def _answered(alone: re.Match[str], asked: str, mark: str) -> set[bool]:
    """Return the verdict of a clause behind a label or a question; empty if that asks for something else."""
    right = (alone["word"] in _YES) is not bool(alone["not"])
    if not asked or alone["word"] not in ("yes", "no", "true", "false"):
        return {right}
    if _asks_fault.search(asked):  # "Wrong: no" may repeat the label, or deny it
        return {not right} if right or mark == "?" else {True, False}
    return {right} if _asks.search(asked) else set()
