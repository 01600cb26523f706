"""An answer is taken out of a text, without a model."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel

from orchestrator.graph.node import Effect, Node, Port
from orchestrator.graph.outcome import Outcome

AnswerForm: TypeAlias = Literal["text", "number", "choice", "yes_no"]

_said = re.compile(
    r"(?:\b(?:the|final)[ ]answer|^[\s#*_>-]{0,8}answer)[ ]{0,4}(?:\([^()\n]{0,60}\))?[ *_]{0,4}(?:\bis\b|:|=)[\s*_:]*",
    re.IGNORECASE | re.MULTILINE,
)
_patterns = {
    "number": re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"),
    "choice": re.compile(r"\b[A-E]\b"),
    "yes_no": re.compile(r"\b(?:yes|no)\b", re.IGNORECASE),
}


class Extract(Node, kind="extract"):
    """Look for the answer in a text. It takes `found` and writes the answer, or takes `missing` and writes nothing.

    What stands behind the last "the answer is" counts, the first of it that has the form. Where a text does not say
    so, the last that has the form is taken, unless the answer has to be `announced`.
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
    """What an answer is: the rest of the line; a number; a letter from A to E; `yes` or `no`."""
    announced: bool = False
    """Whether only what stands behind "the answer is" is taken."""

    async def run(self, state: object, ctx: object) -> Outcome[Literal["found", "missing"]]:
        found = find_answer(str(getattr(state, self.text)), self.form, announced=self.announced)
        return Outcome("missing") if found is None else Outcome("found", {self.answer: found})


def find_answer(text: str, form: AnswerForm, *, announced: bool = False) -> str | None:
    """The answer that a text gives, in one way of writing it; None if it gives none."""
    place = None
    for place in _said.finditer(text):  # noqa: B007  the last one is wanted
        pass
    rest = text[place.end() :] if place is not None else "" if announced else text
    if form == "text":
        line = rest.strip() if place is None else rest.strip().partition("\n")[0]
        return line.strip(" \t*_\"“”'").removesuffix(".").strip(" \t*_\"“”'") or None
    hits = _patterns[form].findall(rest)
    if not hits:
        return None
    hit = str(hits[0] if place is not None else hits[-1])
    if form == "number":
        whole, dot, part = hit.replace(",", "").partition(".")
        return f"{whole}{dot}{part}".rstrip("0").rstrip(".") if dot else whole
    return hit.lower() if form == "yes_no" else hit
