"""The labels with which models tell their thoughts from their answers: `Thought 1: ...`, `Final Answer: ...`."""

from __future__ import annotations

import re

# Every repetition has a bound, so that no text takes long.
_label = r"^[ \t]{{0,8}}\*{{0,2}}{}(?:[ \t]{{0,8}}\d{{1,6}})?[ \t]{{0,8}}\*{{0,2}}[ \t]{{0,8}}:[ \t]{{0,8}}(?:\*\*)?"
_thought = re.compile(_label.format("Thought"), re.IGNORECASE)
_final = re.compile(_label.format("Final[ \t]{1,8}Answer"), re.IGNORECASE | re.MULTILINE)
_answer = re.compile(_label.format("(?:Final[ \t]{1,8})?Answer"), re.IGNORECASE | re.MULTILINE)


def thought_in(text: str) -> str:
    """What a model thinks, without the label; empty if that is all there is."""
    bare = text.strip()
    label = _thought.match(bare)
    return bare[label.end() :].strip() if label else bare


def answer_in(text: str, finish: str = "") -> tuple[str, str] | None:
    """The answer in a text that makes no call, and the thoughts before it; None: it is a thought, and no more.

    A text without labels is an answer. `finish` is the name of an action that ends the work: a last line
    `Finish[answer]` is read even where nothing says that it is an action.
    """
    bare = text.strip()
    if finish:
        line = re.search(rf"^[ \t]{{0,8}}{re.escape(finish)}[ \t]{{0,8}}\[", bare, re.IGNORECASE | re.MULTILINE)
        end = bare.rstrip(" \t*.;`")
        if line is not None and end.endswith("]"):
            return end[line.end() : -1].strip(), thought_in(bare[: line.start()])
    thinks = _thought.match(bare) is not None
    label = (_answer if thinks else _final).search(bare)
    if label is not None:
        return bare[label.end() :].strip(), thought_in(bare[: label.start()])
    return None if thinks else (bare, "")
