"""The arguments of a planned call, from what the plan has in its brackets and from the evidence so far.

What a plan writes is read by the tool's schema: `Encyclopedia[The Hennchata]` is the one text that the tool takes,
`multiply[#E1, 4]` two numbers, `multiply[{"a": #E1, "b": 4}]` and `multiply[a=#E1, b=4]` the same. It is taken apart
before evidence is put in, so nothing that a tool said is ever read as a plan.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from orchestrator.errors import AgentError
from orchestrator.json import JsonObject
from orchestrator.models.text.forms import cut_at_commas
from orchestrator.nodes.plans.blueprint import REFERENCE, PlannedCall, needs_of, quoted_references
from orchestrator.nodes.steps import Step
from orchestrator.tools.conversion import coerced, kinds_taken
from orchestrator.tools.result import as_text
from orchestrator.tools.validation import faults

Evidence: TypeAlias = Mapping[str, Step]
"""What came of the calls, by their ids."""

_LONGEST = 20_000
"""Characters of the longest input that is looked at for JSON."""
_bare = re.compile(
    rf"""'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|{REFERENCE.pattern}""", re.IGNORECASE | re.DOTALL
)
_quote = re.compile(r"'(?P<single>[^'\n]*)'|`(?P<tick>[^`\n]*)`")
_apart = re.compile(
    r"""
    "(?:[^"\\]|\\.){0,1000}+" | (?<![\w)\]])'[^'\n]{0,1000}+'(?=\s*(?:,|$))
  | (?P<open>[\[({]) | (?P<close>[\])}]) | (?P<comma>,)
    """,
    re.VERBOSE | re.DOTALL,
)


def arguments_of(call: PlannedCall, evidence: Evidence, parameters: JsonObject) -> dict[str, Any]:
    """What to call the tool with; not yet validated.

    An input that is nothing but one reference is the evidence itself, of whatever type; in a longer one its text
    is put in. A tool with one required parameter that takes a text gets all of the input as that text.

    Raises:
        AgentError: the input has more parts than the tool has parameters.
    """
    properties = _properties(parameters)
    if not properties or not call.input:
        return {}
    wanted: Any = parameters.get("required") or ()
    required = [name for name in wanted if name in properties] or list(properties)
    only = required[0] if len(required) == 1 else None
    read = _json(call.input)
    pieces: dict[str, Any]
    if isinstance(read, dict) and (only is None or only in read or set(read) <= set(properties)):
        pieces = read
    else:
        texts = _named(call.input, properties) or _placed(call.input, properties, only)
        pieces = {name: _piece(text, properties[name], parameters) for name, text in texts.items()}
    return {name: _fitting(piece, evidence, properties.get(name, True), parameters) for name, piece in pieces.items()}


def evidence_in(text: str, evidence: Evidence) -> Any:
    """A text with its evidence; the evidence itself, of whatever type, where the text is one reference only."""
    whole = REFERENCE.fullmatch(text.strip())
    if whole is not None:
        return _value(whole, evidence)
    # One pass: what is put in is not looked at again.
    return REFERENCE.sub(lambda match: as_text(_value(match, evidence)), text)


def _value(match: re.Match[str], evidence: Evidence) -> Any:
    (name,) = needs_of(match[0])
    step = evidence.get(name)
    if step is None:
        return f"Error: there is no evidence {name}"
    return f"Error: {step.text}" if step.failed else step.tool_output


def _filled(piece: Any, evidence: Evidence, *, as_texts: bool = False) -> Any:
    if isinstance(piece, str):
        found = evidence_in(piece, evidence)
        return as_text(found) if as_texts else found
    if isinstance(piece, list):
        return [_filled(one, evidence, as_texts=as_texts) for one in piece]
    if isinstance(piece, dict):
        return {key: _filled(one, evidence, as_texts=as_texts) for key, one in piece.items()}
    return piece


def _named(text: str, properties: Mapping[str, Any]) -> dict[str, str] | None:
    """`a=2, b=#E1` by names, None if it is not written so."""
    names = "|".join(re.escape(name) for name in properties)
    parts = re.split(rf"(?:\A|,)\s*({names})\s*(?:=(?!=)|:)", text)
    if parts[0].strip() or len(parts) < 3 or len(set(parts[1::2])) < len(parts[1::2]):
        return None
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _placed(text: str, properties: Mapping[str, Any], only: str | None) -> dict[str, str]:
    """The parts of a text by their places; all of it, where the tool needs one argument only."""
    if only is not None:
        return {only: text}
    parts = cut_at_commas(text, _apart)
    if len(parts) > len(properties):
        names = ", ".join(properties)
        raise AgentError(f"it takes {len(properties)} arguments ({names}), and the plan gives {len(parts)}")
    return dict(zip(properties, parts, strict=False))


def _piece(text: str, schema: Any, root: JsonObject) -> Any:
    """One argument as it is written: a text without its quotes, or a list or an object where one is wanted."""
    text = text.strip()
    kinds = kinds_taken(schema, root)
    read = _json(text)
    if isinstance(read, str) and not REFERENCE.fullmatch(text):
        return read
    if "string" not in kinds:
        if isinstance(read, list | dict):
            return read
        several = _json(f"[{text}]")
        if "array" in kinds and isinstance(several, list) and len(several) > 1:
            return several
    quoted = _quote.fullmatch(text)
    return quoted["single"] or quoted["tick"] or "" if quoted is not None else text


def _fitting(piece: Any, evidence: Evidence, schema: Any, root: JsonObject) -> Any:
    """One argument with its evidence, which is a text where the tool takes texts only."""
    value = _filled(piece, evidence)
    if faults(coerced(value, schema, root), schema, root):
        text = _filled(piece, evidence, as_texts=True)
        return value if faults(coerced(text, schema, root), schema, root) else text
    return value


def _properties(parameters: JsonObject) -> dict[str, Any]:
    found: Any = parameters.get("properties") or {}
    return dict(found)


def _json(text: str) -> Any:
    """The JSON that a text is, references in it as texts; None if it is none.

    A list or an object may also be written as in Python, which is only read: with single quotes, `True`, a last comma.
    """
    if len(text) > _LONGEST:
        return None
    try:
        return json.loads(quoted_references(text), parse_constant=_refuse)
    except (ValueError, RecursionError):
        pass
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        found = ast.literal_eval(_bare.sub(lambda match: f"'{match[0]}'" if match[0][0] == "#" else match[0], text))
        return json.loads(json.dumps(found, allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
