"""An answer is taken out of a text, without a model."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel

from orchestrator.context import Context
from orchestrator.errors import AgentError
from orchestrator.graph.node import Effect, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.nodes.model_decision import quoted

AnswerForm: TypeAlias = Literal["text", "number", "choice", "yes_no"]

_said = re.compile(
    r"""
    (?: (?P<colon> ^[\s#*_>"“-]{0,8} | [.!?][ ]{1,4}[*_]{0,4}(?=final|answer) )   # a line begins, or a sentence
      | [.!?;:,)"”*…][ ]{1,4}[*_"“]{0,4}                                          # a part of a sentence begins
      | \b(?=(?:so|thus|hence|therefore)\b) )
    (?: (?:and|but|so|thus|hence|therefore|then|now)\b,?[ ]{1,4} ){0,2}
    (?: (?:of|among)[ ][^.!?,:;\n]{1,40}?[ ] )?                                   # So of the choices A to E
    (?: (?:the|my|our)[ ]{1,4} )? (?: (?:final|correct|right|numerical)[ ]{1,4} ){0,2} answer\b [*_]{0,4}
    (?: [ ]{0,4}\([^()\n]{0,60}\) | ,[ ][^,.!?\n]{1,60}, | [ ](?:to|in|of|for|as)[ ][^.!?:;\n]{1,60}? )?
    [ *_]{0,4} (?: \b(?:is|equals)\b(?!n?['’]t) | = | (?(colon) : | (?!) ) )
    (?: [ ](?:as[ ]follows|below)\b )? [\s*_:]*
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""What says that an answer comes: a sentence of its own, not "check if the answer is" or "to find the answer:"."""

_digits = r"\d{1,3}(?:(?:,\d{3})+|(?:['’]\d{3})+|(?:[ \u00a0\u2009\u202f]\d{3})+)(?!\d)|\d+"
_patterns = {
    "number": re.compile(rf"(?<![\w.])(?:(?:{_digits})(?:\.\d+)?|\.\d+)(?:e[+−-]?\d+(?!\w))?", re.IGNORECASE),
    "choice": re.compile(r"\b[A-E]\b"),
    "yes_no": re.compile(r"\b(?:yes|no)\b", re.IGNORECASE),
}
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
"""What makes the number behind it a negative one."""

_end = re.compile(r"[.!?][\"”')*_]{0,3}[ \t]+(?=[A-Z\"“(*])")
_abbreviated = re.compile(
    r"\b(?:[^\W\d_]|dr|mr|mrs|ms|st|mt|ft|jr|sr|vs|prof|gen|inc|ltd|co|etc|e\.g|i\.e)$", re.IGNORECASE
)
_named = {"text": "answer", "number": "number", "choice": "letter from A to E", "yes_no": "yes or no"}
_quotes = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}


class Extract(Node, kind="extract"):
    """Find the answer in a text. Take `found` and write the answer, or take `missing` and write nothing.

    The answer is the first value of the form after "the answer is" on the same line; if several lines have one, that of
    the last line. Without such a line, the last value of the form is used, unless the answer has to be `announced`.

    Raises:
        AgentError: there is no answer, and one is `required`.
    """

    class State(BaseModel):
        """The fields that the ports name by default."""

        reply: str = ""
        """The text."""
        answer: str = ""
        """The answer."""

    effect: Effect = "pure"
    """It looks at the text only."""
    text: Annotated[str, Port(str)] = "reply"
    """Field with the text."""
    answer: Annotated[str, Port()] = "answer"
    """Field that gets the answer."""
    form: AnswerForm = "text"
    """What an answer is: the rest of the sentence; a number; a letter from A to E; `yes` or `no`."""
    announced: bool = False
    """Whether only what stands behind "the answer is" is taken."""
    required: bool = False
    """Whether a text without an answer fails the step."""
    fault: Annotated[str | None, Port(str)] = None
    """Field for the message that a text has no answer; None: no field."""

    async def run(self, state: object, ctx: Context) -> Outcome[Literal["found", "missing"]]:
        text = str(getattr(state, self.text))
        found = find_answer(text, self.form, announced=self.announced)
        if found is not None:
            return Outcome("found", {self.answer: found})
        fault = f"{ctx.node}: the reply {quoted(text)} has no {_named[self.form]}"
        if self.required:
            raise AgentError(fault)
        return Outcome("missing", {} if self.fault is None else {self.fault: fault})


def find_answer(text: str, form: AnswerForm, *, announced: bool = False) -> str | None:
    """The answer that a text gives, in one way of writing it; None if it gives none."""
    end, places = len(text), list(_said.finditer(text))
    for place in reversed(places):
        start, end = place.end(), _line_end(text, place.end(), end)
        denied = form != "text" and text.startswith("not ", start)  # 'not 3' is a text, but no number
        found = None if denied else _read(text, start, end, form, first=True)
        if found is not None:
            return found
        end = place.start()
    return None if places or announced else _read(text, 0, len(text), form, first=False)


def _line_end(text: str, start: int, end: int) -> int:
    found = text.find("\n", start, end)
    return end if found < 0 else found


def _read(text: str, start: int, end: int, form: AnswerForm, *, first: bool) -> str | None:
    """The first or last that has the form, between two places; of text all of it, or its first sentence."""
    if form == "text":
        found = _bare(_sentence(text[start:end]) if first else text[start:end])
        return found if found.strip() else None
    hits = _patterns[form].finditer(text, start, end)
    hit = next(hits if first else reversed([*hits]), None)
    if hit is None:
        return None
    if form == "number":
        return _number(hit[0], negative=_negative.search(text[max(0, hit.start() - 16) : hit.start()]) is not None)
    return hit[0].lower() if form == "yes_no" else hit[0]


def _number(digits: str, *, negative: bool) -> str:
    """One way to write a number: without groups, without zeros at the end; an exponent is worked out if it is small."""
    number, e, power = re.sub(r"[,'’\s]", "", digits).lower().replace("−", "-").partition("e")
    if e and len(power.lstrip("+-0")) <= 2:
        number, e = format(Decimal(f"{number}e{power}"), "f"), ""
    whole, dot, part = number.partition(".")
    plain = f"{whole or 0}{dot}{part}".rstrip("0").rstrip(".") if dot else whole
    return f"{'-' if negative and plain.strip('0') else ''}{plain}{e}{power if e else ''}"


def _sentence(line: str) -> str:
    """The first sentence of a line; a full stop after an initial or a title ends none."""
    for end in _end.finditer(line):
        if not _abbreviated.search(line[max(0, end.start() - 8) : end.start()]):
            return line[: end.end()]
    return line


def _bare(words: str) -> str:
    """Without marks of emphasis, a full stop and quotes around it; quotes inside stay."""
    for _ in range(4):
        words = words.strip(" \t\r\n*_").removesuffix(".").rstrip(" \t*_")
        inside = words[1:-1]
        if len(words) > 1 and _quotes.get(words[0]) == words[-1] and not {words[0], words[-1]}.intersection(inside):
            words = inside
        elif (words.endswith('"') and words.count('"') % 2) or (words.endswith("”") and "“" not in words):
            words = words[:-1]  # the whole sentence was quoted
    return words
