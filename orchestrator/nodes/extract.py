"""Extract an answer from a text, without a model."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.nodes.model_decision import quoted
from orchestrator.nodes.templates import text_of
from orchestrator.tasks import away

AnswerForm: TypeAlias = Literal["text", "number", "choice", "yes_no"]

_said = re.compile(
    r"""
    (?: (?P<colon> ^[\s#*_>"“-]{0,8}+ | [.!?][ ]{1,4}[*_]{0,4}(?=final|answer) )   # a line begins, or a sentence
      | [.!?;:,)"”*…][ ]{1,4}[*_"“]{0,4}                                          # a part of a sentence begins
      | \b(?=(?:so|thus|hence|therefore)\b) )
    (?: (?:and|but|so|thus|hence|therefore|then|now)\b,?[ ]{1,4} ){0,2}
    (?: (?:of|among)[ ][^.!?,:;\n]{1,40}?[ ] )?                                   # So of the choices A to E
    (?: (?:the|my|our)[ ]{1,4} )? (?: (?:final|correct|right|numerical)[ ]{1,4} ){0,2} answer\b [*_]{0,4}
    (?: [ ]{0,4}\([^()\n]{0,60}\) | ,[ ][^,.!?\n]{1,60}, | [ ](?:to|in|of|for|as)[ ][^.!?:;\n]{1,60}? )?
    [ *_]{0,4} (?: \b(?:is|equals)\b(?!n?['’]t) | = | (?(colon) [:：] | (?!) ) )
    (?: [ ](?:as[ ]follows|below)\b )? [\s*_:：]*
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""Announcement of an answer: a sentence of its own, not "check if the answer is" or "to find the answer:"."""

_digits = r"\d{1,3}(?:(?:,\d{3})+|(?:['’]\d{3})+|(?:[ \u00a0\u2009\u202f]\d{3})+)(?!\d)|\d+"
_patterns = {
    "number": re.compile(
        rf"""
        (?<![\w.]) (?<![^\W\d_]\^) (?<![^\W\d_]\^\{{)               # in H2O and m^2 is no number
        (?P<digits> (?:{_digits})(?:\.\d+)? | \.\d+ )
        (?: (?P<power>e[+−-]?\d+)(?!\w) | /(?P<under>\d++)(?![/\w]) )?
        (?P<more>                                                   # what makes another number of it
          (?-i:[kKM]|[bm]n)\b | [ ]?(?:hundred|thousand|million|billion|trillion|dozen)\b
          | [ ]?\^[ ]?\{{?[−-]?\d* | [ ]?\*\*[ ]?\d+ | [⁰¹²³⁴⁵⁶⁷⁸⁹⁻] | (?-i:[nxyz])\b
          | [ ]\d{{1,4}}/\d{{1,4}}(?![/\w]) | \}}\{{\d+ | :\d\d(?!\d) | [,_]\d+ )?   # 2 1/2, \frac{{1}}{{2}}, 3:30, 1,5
        """,
        re.IGNORECASE | re.VERBOSE,
    ),
    "choice": re.compile(r"\(([A-Ea-e])\)|(?<![\w.])([A-Ea-e])\)|\b([A-E])\b"),
    "yes_no": re.compile(r"\b(yes|no)\b", re.IGNORECASE),
}
_operator = re.compile(r"[\s$€£¥₹()]{0,8}(?:[-+*x×÷/·−–]|\\times|\\div)[\s$€£¥₹()]{0,8}")
_equals = re.compile(r"(?<![<>!])=|[≈≅≃]|\\approx\b|\bequals\b|\bequal[ ]to\b")
_clause = {
    "choice": re.compile(r"[;:.!?—–]|,(?!\s{0,9}(?:and|or)?\s{0,9}\(?[A-E]\b)|\b(?:because|since|as)\b"),
    "yes_no": re.compile(r"[;:.!?—–]|,(?!\s{0,9}(?:yes|no)\b)|\b(?:because|since|as)\b", re.IGNORECASE),
}
"""End of the clause that contains the answer: the rest of the sentence explains it."""
_first = {
    "choice": re.compile(r"[^\w\n]{0,8}[A-E][)\]*_\"”]{0,4}(?:[.;:!—]|,(?!\s{0,9}(?:and|or)?\s{0,9}\(?[A-E]\b))"),
    "yes_no": re.compile(r"[^\w\n]{0,8}(?:yes|no)\b[*_\"”]{0,4}(?:[.;:!—]|,(?!\s{0,9}(?:yes|no)\b))", re.IGNORECASE),
}
"""A reply that starts with the answer, as in "Yes, since there is no other way"."""
_UNCERTAIN = ""
"""A reading that looks like an answer and has no single value: `1.5 million`, `10 + 10`."""
_negative = re.compile(
    r"""
    (?: (?<![\w)\]%.])[-−–]                                     # -5, but neither 3-5 nor (a)-5
      | (?<![\d)\]%][ ])(?<!\b[a-z][ ])(?<![\w)\]%.])−[ ]       # a minus with a space after it, where nothing is before
      | (?: (?<=\bis[ ]) | (?<=[=:≈][ ]) ) (?:-|minus)[ ]
      | \bnegative[ ] )
    (?: [$€£¥₹][ ]? )? $
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Signs and words that make the next number negative."""

_in_word = re.compile(r"(?<=[^\W\d_][-–])\d|\d(?=(?:st|nd|rd|th)\b)", re.IGNORECASE)
"""A number that is part of a word, such as GPT-4 or 2nd."""
_line_below = re.compile(r"\n[\s*_:：]*\Z")
_LONGEST_GAP = 40
"""Maximum number of characters between an announcement and an answer below it."""
_MOST_WORDS = 4
"""Maximum number of words of a line that is an answer with its unit, with more lines below it."""
_equation = re.compile(r"[=:≈]")
_working = re.compile(r"(?:step\b|\d{1,3}[.)]\s|[-*•]\s|[^\n]*=)", re.IGNORECASE)
_end = re.compile(r"[.!?][\"”')*_]{0,3}[ \t]+(?=[A-Z\"“(*])")
_abbreviated = re.compile(
    r"\b(?:[^\W\d_]|dr|mr|mrs|ms|st|mt|ft|jr|sr|vs|prof|gen|inc|ltd|co|etc|e\.g|i\.e)$", re.IGNORECASE
)
_named = {"text": "answer", "number": "number", "choice": "letter from A to E", "yes_no": "yes or no"}
_several = {"number": "numbers", "choice": "letters from A to E"}
_FINDS = {"text": "the answer", "number": "a number", "choice": "a letter from A to E", "yes_no": "yes or no"}
_quotes = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}


class Extract(Node, kind="extract"):
    """Find the answer in a text. Take `found` and write the answer, or take `missing` and write nothing.

    The answer is the text after "the answer is"; if several lines contain that, the last one counts. Without such a
    line, the last line with a value of the form is read, unless the answer has to be `announced`.

    A number is taken from the text after the last equals sign of its sentence (`20 + 8 = 28`), or else only if the
    sentence has one distinct number. Likewise, a sentence that names two letters, or contains both yes and no, has no
    answer.

    Raises:
        AgentError: there is no answer, and one is `required`.
    """

    look = "code"

    fills = ("answer", "fault")

    class State(BaseModel):
        """The fields that the ports name by default."""

        reply: str = ""
        """The text."""
        answer: str = ""
        """The answer."""

    effect: Effect = "pure"
    """It reads only the text."""
    text: Annotated[str, Port()] = "reply"
    """Field with the text; another value is read as JSON."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the answer."""
    form: AnswerForm = "text"
    """The form of an answer: `text` (the rest of the sentence), a number, a letter from A to E, or `yes` or `no`."""
    announced: bool = False
    """True to read only text after "the answer is"."""
    required: bool = False
    """True to fail the step if the text has no answer."""
    fault: Annotated[str | None, Port(str)] = None
    """Field for the message that a text has no answer; None for no field."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"finds {_FINDS[self.form]}"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["found", "missing"]]:
        text = text_of(getattr(state, self.text))
        found = await away(partial(_answers, text, self.form, announced=self.announced), text)
        answer = _only(found)
        if answer is not None:
            return Outcome("found", {self.answer: answer})
        fault = f"{ctx.node}: the reply {quoted(text)} {_fault(found, self.form)}"
        if self.required:
            raise AgentError(fault)
        return Outcome("missing", {} if self.fault is None else {self.fault: fault})


def find_answer(text: str, form: AnswerForm, *, announced: bool = False) -> str | None:
    """Read the answer that a text states.

    For a number, a letter, yes or no, a statement is read only if it is unambiguous: the value after its last equals
    sign, or else its only value. A statement with several values has no answer, so that the model is asked rather than
    one of them chosen.

    Args:
        text: the text.
        form: the form of an answer.
        announced: True to accept only text after "the answer is".

    Returns:
        The answer in a normalized form; None if the text has none, or several.
    """
    return _only(_answers(text, form, announced=announced))


def last_number(text: str) -> str | None:
    """Read the number that a text announces as its answer, else its last number.

    One that is part of a word, as in `2nd`, is its last number only if there is no other.

    Args:
        text: the text.

    Returns:
        The number in a normalized form, perhaps a fraction; None if there is none, or the last one has no single value.
    """
    announced = find_answer(text, "number", announced=True)
    if announced is not None:
        return announced
    hits = [*_patterns["number"].finditer(text)]
    whole = [hit for hit in hits if not _in_word.match(text, hit.start()) and not _in_word.match(text, hit.end() - 1)]
    return (_value_of(text, (whole or hits)[-1]) or None) if hits else None


def _answers(text: str, form: AnswerForm, *, announced: bool) -> set[str]:
    """Return all answers that the deciding statement may mean."""
    lines = _statements(text)
    for statements in lines:
        found = set[str]()
        for start, end in statements:
            if _is_working(text, start, end, form, announced=announced):
                found.add(_UNCERTAIN)
            elif form == "text":
                said = _bare(_sentence(text[start:end]))
                if said.strip():
                    return {said}
            elif not text.startswith("not ", start):  # 'not 3' is a text, but not a number
                found |= _read(text, start, start + len(_sentence(text[start:end])), form)
        if found:
            return found
    if lines or announced:
        return set()
    if form != "text":
        return _last_line(text, form)
    said = _bare(text)
    return {said} if said.strip() else set()


def _is_working(text: str, start: int, end: int, form: AnswerForm, *, announced: bool) -> bool:
    """Return True if a line below an announcement starts several sentences or lines, and is not the answer itself."""
    if not _line_below.search(text[max(0, start - _LONGEST_GAP) : start]):
        return False
    if form != "text" and text[start + len(_sentence(text[start:end])) : end].strip():
        return True
    if not text[end:].strip():
        return False
    line = text[start:end].strip(' \t*_$€£¥₹("“')
    if form == "text":
        return announced and _working.match(line) is not None
    begins = _patterns[form].match(line) or _patterns[form].match(f"({line}")
    return begins is None or _equation.search(line) is not None or len(line.split()) > _MOST_WORDS


def _fault(found: set[str], form: AnswerForm) -> str:
    """Return why a text has no single answer."""
    values = sorted(found - {_UNCERTAIN}, key=lambda value: (len(value), value))
    if form == "yes_no" and len(values) > 1:
        return "has both yes and no"
    if len(values) > 1:
        return f"has several {_several[form]}: {', '.join(values)}"
    return f"has no single {_named[form]}" if found else f"has no {_named[form]}"


def _statements(text: str) -> list[list[tuple[int, int]]]:
    """Return the places where answers are announced, by line, from the last line and the last place in a line."""
    lines: list[list[tuple[int, int]]] = []
    after = len(text)
    for place in reversed([*_said.finditer(text)]):
        newline = text.find("\n", place.end(), after)
        if newline >= 0 or not lines:
            lines.append([])
        lines[-1].append((place.end(), after if newline < 0 else newline))
        after = place.start()
    return lines


def _only(found: set[str]) -> str | None:
    return next(iter(found)) or None if len(found) == 1 else None


def _last_line(text: str, form: AnswerForm) -> set[str]:
    """Return the readings of the last line that has any, or of the beginning if that is the answer."""
    if form in _first and (first := _first[form].match(text)):
        return _values(text, 0, first.end(), form)
    end = len(text)
    while end >= 0:
        begin = text.rfind("\n", 0, end) + 1
        found = _read(text, begin, end, form) if form == "number" else _values(text, begin, end, form)
        if found or not begin:
            return found
        end = begin - 1
    return set()


def _read(text: str, start: int, end: int, form: AnswerForm) -> set[str]:
    """Return the readings of a statement."""
    if form == "number":
        last = next(reversed([*_equals.finditer(text, start, end)]), None)
        behind = _values(text, last.end(), end, form) if last is not None else set[str]()
        return behind or _values(text, start, end, form)
    while start < end:  # the first clause with a value
        clause = _clause[form].search(text, start, end)
        stop = end if clause is None else clause.start()
        if found := _values(text, start, stop, form):
            return found
        start = end if clause is None else clause.end()
    return set()


def _values(text: str, start: int, end: int, form: AnswerForm) -> set[str]:
    """Return all distinct values between two places."""
    found = set[str]()
    before: int | None = None
    for hit in _patterns[form].finditer(text, start, end):
        if form != "number":
            said = hit[hit.lastindex or 0]
            found.add(said.lower() if form == "yes_no" else said.upper())
            continue
        summed = before is not None and hit.start() - before <= 24 and _operator.fullmatch(text, before, hit.start())
        before = hit.end()
        found.add(_value_of(text, hit))
        found |= {_UNCERTAIN} if summed else set()
    return found


def _value_of(text: str, hit: re.Match[str]) -> str:
    """Write a number in one form: without groups and trailing zeros; a small exponent is computed."""
    if hit["more"]:
        return _UNCERTAIN
    negative = _negative.search(text[max(0, hit.start() - 16) : hit.start()]) is not None
    number = re.sub(r"[,'’\s]", "", hit["digits"])
    e, power = ("e", hit["power"][1:].replace("−", "-")) if hit["power"] else ("", "")
    if hit["under"]:
        return _fraction(number, hit["under"], negative=negative)
    if e and len(power.lstrip("+-0")) <= 2:
        number, e = format(Decimal(f"{number}e{power}"), "f"), ""
    whole, dot, part = number.partition(".")
    plain = f"{whole or 0}{dot}{part}".rstrip("0").rstrip(".") if dot else whole
    return f"{'-' if negative and plain.strip('0') else ''}{plain}{e}{power if e else ''}"


def _fraction(above: str, under: str, *, negative: bool) -> str:
    if "." in above or max(len(above), len(under)) > 30 or not int(under):
        return _UNCERTAIN
    return str(Fraction(int(above), int(under)) * (-1 if negative else 1))


def _sentence(line: str) -> str:
    """Return the first sentence of a line; a full stop after an initial or a title does not end it."""
    for end in _end.finditer(line):
        if not _abbreviated.search(line[max(0, end.start() - 8) : end.start()]):
            return line[: end.end()]
    return line


def _bare(words: str) -> str:
    """Return a text without emphasis, full stop and surrounding quotes; inner quotes are kept."""
    for _ in range(4):
        words = words.strip(" \t\r\n*_").removesuffix(".").rstrip(" \t*_")
        inside = words[1:-1]
        if len(words) > 1 and _quotes.get(words[0]) == words[-1] and not {words[0], words[-1]}.intersection(inside):
            words = inside
        elif (words.endswith('"') and words.count('"') % 2) or (words.endswith("”") and "“" not in words):
            words = words[:-1]  # the whole sentence was quoted
    return words
