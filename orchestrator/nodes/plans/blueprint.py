"""A plan of calls with their arguments, made before anything is called (ReWOO, arXiv 2305.18323).

    Plan: Find the page about the drink.
    #E1 = Encyclopedia[The Hennchata]

    Plan: Read from it what it is made of.
    #E2 = ask_model[Which cognac is in it, going by #E1?]

`#E1` stands for the result of the call, its evidence; an input may use that of any other call, as long as no call needs
itself. Models deviate from this format, so bullets, numbers, bold face, fences, one line for both, several calls for
one plan, and colons or nothing for equal signs are accepted as well. A call without a plan counts; a plan without a
call becomes part of the next one's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, islice

from pydantic import BaseModel, ConfigDict

from orchestrator.models.reading import one_reading, parted
from orchestrator.nodes.plans import PlanFault

REFERENCE = re.compile(r"#E([0-9]++)(?![0-9A-Za-z_])", re.IGNORECASE)
"""A place where evidence is inserted. The whole number counts: `#E1` is not part of `#E10`."""

MOST_CALLS = 300
"""Maximum number of calls of a plan."""
LONGEST = 100_000
"""Maximum number of characters of a plan."""
_TOLD = 20
"""Maximum number of problems of a plan that are listed."""


class PlannedCall(BaseModel):
    """One step of a blueprint. As an item of a map it starts when the steps that it needs are done."""

    model_config = ConfigDict(frozen=True)

    id: str
    """`E1`; inputs name it `#E1`."""
    needs: tuple[str, ...] = ()
    """Ids of the calls whose evidence the input uses."""
    thought: str = ""
    """Its purpose, in the planner's words."""
    tool: str = ""
    """Name of the tool; empty if nothing is called and the input itself is the evidence."""
    input: str = ""
    """The text in the brackets; references to evidence have the form `#E1`."""

    @property
    def written(self) -> str:
        """The call as a plan writes it."""
        return f"{self.tool}[{self.input}]" if self.tool else self.input


# Repetitions are possessive: each of these patterns examines a character a fixed number of times at most.
_BEGIN = r"^[ \t>•*+-]*+(?:\(?[0-9]{1,3}[.):][ \t]*+)?+(?:\#{2,}+[ \t]++)?+[*_`]*+"
_PLAN = (
    r"(?:\#?[ \t]*+plan[ \t]*+(?:step)?[ \t]*+\#?[ \t]*+[0-9]*+|step[ \t]*+\#?[ \t]*+[0-9]++)"
    r"[*_`]*+[ \t]*+[:：][*_`]*+"
)
NAME = r"[^\W\d][\w.-]*+"
"""Name of a tool."""
_EQUALS = r"[*_`]*+[ \t]*+(?::=|=>|->|<-|[→←=:：])[*`]*+"
_EVIDENCE = rf"\#[ \t]?E[ \t]?(?P<{{}}>[0-9]++){_EQUALS}"
_CALLED = rf"(?=[ \t]*+[*`]*+{NAME}[*`]*+[\[(])"

_head = re.compile(
    rf"{_BEGIN}(?:(?P<plan>{_PLAN})|{_EVIDENCE.format('first')}"
    rf"|(?:\#[ \t]?E[ \t]?(?P<unequal>[0-9]++)[*_`]*+|E(?P<bare>[0-9]++){_EQUALS}){_CALLED})"
    rf"|{_EVIDENCE.format('later')}(?=[ \t]*+[*`]*+{NAME}(?:[ ][\w.-]++){{0,4}}+[*`]*+[\[(])",
    re.IGNORECASE | re.MULTILINE,
)
"""Start of a plan or a call: at the start of a line. A call with its brackets also as `E1 = a[b]` or `#E1 a[b]`, or, as
`#E1 = a[b]`, within a line.
"""
_call = re.compile(
    rf"[ \t]*+[*`]*+(?P<tool>{NAME}(?:[*`]*+(?=[\[(])|(?:[ ]++[\w.-]++)*+[*`]*+[ \t]*+(?=\[)))(?P<open>[\[(])"
)
_another = re.compile(
    rf"[ \t]*+[*`]*+(?:[+,;&|/][ \t]*+(?:(?:and|then|or)[ \t]++){{0,2}}|(?:(?:and|then|or)[ \t]++){{1,2}})"
    rf"[*`]*+{NAME}[*`]*+[\[(]",
    re.IGNORECASE,
)
_end = re.compile(r"<\s*+/?\s*+end[ _-]?of[ _-]?plan\s*+/?\s*+>", re.IGNORECASE)
_fence = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_last_fence = re.compile(r"\n[ \t]*+(?:```|~~~)\s*+\Z")
_other_reference = re.compile(r"#?\$?\{{1,2}+#?E([0-9]++)\}{1,2}+|\$E([0-9]++)\b|(?<![\w#$.{-])E([0-9]++)(?![\w.-])")
"""Evidence in other forms: `${E1}`, `{E1}`, `$E1`, and `E1` alone if it is an earlier call."""
_token = re.compile(rf'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|{REFERENCE.pattern}', re.IGNORECASE | re.DOTALL)
_bare = re.compile(rf"'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|{_token.pattern}", re.IGNORECASE | re.DOTALL)
_quotes = re.compile(r'"(?:[^"\\\n]|\\.)*+(?:(?P<closed>")|\\?$)', re.MULTILINE)
_id = re.compile(r"#?E?([0-9]{1,9})", re.IGNORECASE)
_PAIRS = {"[": "]", "(": ")"}
_INPUTS = ("input", "args", "arguments", "parameters", "tool_input")
"""The keys of an input in JSON."""


def read_blueprint(text: str) -> list[PlannedCall]:
    """Return the calls of a plan, in the order in which they are written.

    Raises:
        PlanFault: the plan has no calls or far too many, one cannot be read, an id is duplicated, or an input uses an
            id that is not in the plan or that needs the call itself. The message lists all faults, up to a limit.
    """
    text = up_to_end(text)
    broken: dict[str, str] = {}
    return checked(list(islice(calls_in(text, broken, head=_head, limit=_head), MOST_CALLS + 1)), broken)


def up_to_end(text: str) -> str:
    """Return a plan without the thoughts before it and what follows its end mark.

    Raises:
        PlanFault: it is too long.
    """
    _, text = parted(text)
    end = _end.search(text)
    text = text if end is None else text[: end.start()]
    _bounded(len(text))
    return text


def is_blueprint(text: str) -> bool:
    """Return True if a text has evidence such as `#E1 =`."""
    return any(_number_of(head) is not None for head in _head.finditer(text))


def read_items(items: Sequence[object]) -> list[PlannedCall]:
    """Return the calls of a plan in JSON: one call for each object with a `tool` and an `input`, and perhaps an `id`.

    Texts in it remain texts, whatever they contain.

    Raises:
        PlanFault: as for `read_blueprint`, or an item is not a call.
    """
    found: list[PlannedCall] = []
    broken: dict[str, str] = {}
    own = any(isinstance(item, Mapping) and "id" in item for item in items)
    for place, item in enumerate(items[: MOST_CALLS + 1], 1):
        try:
            found.append(_planned(item, f"E{place}", own=own))
        except PlanFault as fault:
            broken[f"E{place}"] = str(fault)
    _bounded(sum(len(call.input) for call in found))
    return checked(found, broken)


def _planned(item: object, name: str, *, own: bool) -> PlannedCall:
    """Return the call that an object describes; `own` if the calls of the plan have ids of their own."""
    if not isinstance(item, Mapping):
        raise PlanFault("is not an object with a plan, a tool and an input")
    tools, inputs = ([key for key in keys if key in item] for keys in (("tool", "name"), _INPUTS))
    tool = item[tools[0]] if len(tools) == 1 else None
    if not isinstance(tool, str) or not tool.strip():
        raise PlanFault("names no tool")
    if len(inputs) > 1 or (not inputs and item.keys() - {"id", "plan", "thought", *tools}):
        raise PlanFault("needs exactly one input, under the key 'input'")
    if own:
        number = _id.fullmatch(str(item.get("id")))
        if number is None:
            raise PlanFault("needs an id such as 'E1', as the other calls have one")
        name = f"E{_number(number[1])}"
    given = item[inputs[0]] if inputs else None
    text = given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
    thought = " ".join(str(item.get("plan") or item.get("thought") or "").split())
    return PlannedCall(id=name, thought=thought, tool=tool.strip(), input=text.strip())


def _bounded(length: int) -> None:
    if length > LONGEST:
        raise PlanFault(f"it has more than {LONGEST} characters: plan fewer calls, with shorter inputs")


def checked(planned: list[PlannedCall], broken: Mapping[str, str]) -> list[PlannedCall]:
    """Return calls with their needs.

    Args:
        planned: the calls.
        broken: id -> fault of each call that cannot be read.

    Raises:
        PlanFault: the plan cannot be carried out.
    """
    calls = _referring(planned)
    if len(calls) > MOST_CALLS:
        raise PlanFault(f"it has more than {MOST_CALLS} calls: plan fewer")
    faults = [f"#{name} {fault}" for name, fault in broken.items()]
    if not calls and not faults:
        faults.append("it has no call")
    faults += _wrong(calls, broken.keys())
    if faults:
        more = [f"{len(faults) - _TOLD} more faults like these"] if len(faults) > _TOLD else []
        raise PlanFault("; ".join(faults[:_TOLD] + more))
    return calls


def _referring(calls: list[PlannedCall]) -> list[PlannedCall]:
    """Return the calls with the references to other calls in the form `#E1`."""
    known, earlier = {call.id for call in calls}, set[str]()
    found: list[PlannedCall] = []

    def written(match: re.Match[str]) -> str:
        name = f"E{_number(match[1] or match[2] or match[3])}"
        meant = name in earlier if match[3] else name in known or match[0].startswith("${")
        return f"#{name}" if meant else match[0]

    for call in calls:
        given = _other_reference.sub(written, call.input) if call.tool else call.input
        found.append(call.model_copy(update={"input": given, "needs": needs_of(given)}))
        earlier.add(call.id)
    return found


def needs_of(text: str) -> tuple[str, ...]:
    """Return the ids that a text uses, each once, in order."""
    return tuple(dict.fromkeys(f"E{_number(match[1])}" for match in REFERENCE.finditer(text)))


def quoted_references(text: str) -> str:
    """Return JSON in which bare references are quoted: `{"a": #E1}` as `{"a": "#E1"}`."""
    return _bare.sub(lambda match: f'"{match[0]}"' if match[0][0] == "#" else match[0], text)


def _number(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _number_of(head: re.Match[str]) -> str | None:
    """Return the number of a call; None for a plan."""
    return None if head["plan"] else next(filter(None, head.groupdict().values()), None)


def calls_in(
    text: str, broken: dict[str, str], *, head: re.Pattern[str], limit: re.Pattern[str]
) -> Iterator[PlannedCall]:
    """Yield the calls of a plan.

    Args:
        text: the plan.
        broken: gets the fault of each call that cannot be read, by its id.
        head: the start of a plan (the group `plan`) or of a call (any other group, its number).
        limit: the start of what cannot be part of the input before it.
    """
    thoughts: list[str] = []
    found = head.search(text)
    while found is not None:
        number, after = _number_of(found), found.end()
        if number is None:
            found = head.search(text, after)
            words = " ".join(_fence.sub("", text[after : found.start() if found is not None else len(text)]).split())
            thoughts += [words] if words else []
            continue
        name = f"E{_number(number)}"
        try:
            tool, given, after = _read_call(text, after, limit)
        except PlanFault as fault:
            broken[name] = str(fault)
            newline = text.find("\n", after)
            after = len(text) if newline < 0 else newline
        else:
            thought = " ".join(thoughts).strip("*_` ")
            yield PlannedCall(id=name, needs=needs_of(given), thought=thought, tool=tool, input=given)
        thoughts = []
        found = head.search(text, after)


def _read_call(text: str, start: int, limit: re.Pattern[str]) -> tuple[str, str, int]:
    """Return the tool, the input, and the end position of a call."""
    following = limit.search(text, start)
    stop = following.start() if following is not None else len(text)
    closing = _last_fence.search(text, start, stop)
    stop = stop if closing is None else closing.start()
    line_end = min((place for place in (text.find("\n", start), stop) if place >= 0), default=stop)
    match = _call.match(text, start, stop)
    if match is None:
        bare = text[start:line_end].strip().strip("`")
        if not bare:
            raise PlanFault("calls nothing")
        return "", bare, line_end
    opened = match.start("open")
    closed = _closing(text, opened, stop)
    if closed is None:
        raise PlanFault("has a bracket that is not closed")
    if _another.match(text, closed + 1, stop):
        raise PlanFault("contains several calls: give each its own number")
    return match["tool"].strip("*` \t"), text[opened + 1 : closed].strip(), closed + 1


def _closing(text: str, opened: int, stop: int) -> int | None:
    """Return the position of the closing bracket: the end of the JSON, or the match of the first bracket.

    Brackets in quotes do not count, unless there is no other way to read it.
    """
    if text[opened] == "[":
        # Masked by text of the same length, so that positions do not change.
        masked = _token.sub(lambda m: m[0] if m[0][0] == '"' else f'"{"E" * (len(m[0]) - 2)}"', text[opened:stop])
        try:
            return opened + one_reading.raw_decode(masked)[1] - 1
        except (ValueError, RecursionError):
            pass
    given = text[opened:stop]
    for way in (_quotes.sub(lambda m: "E" * len(m[0]) if m["closed"] else m[0], given), given):
        closed = _partner(way)
        if closed is not None:
            return opened + closed
    whole = given.rstrip()
    return opened + len(whole) - 1 if len(whole) > 1 and whole[-1] == _PAIRS[whole[0]] else None


def _partner(text: str) -> int | None:
    """Return the position that closes the bracket at the start of a text; None if it is not closed."""
    begin, close = text[0], _PAIRS[text[0]]
    depths = accumulate((sign == begin) - (sign == close) for sign in text)
    place = next((place for place, depth in enumerate(depths) if depth == 0), None)
    if place is None:
        return None
    line = text[place + 1 :].partition("\n")[0].rstrip()
    if line.endswith(close) and line.count(close) > line.count(begin):  # for `[a ] b]`, the last one
        return place + len(line)
    return place


def _wrong(calls: list[PlannedCall], broken: Collection[str]) -> Iterator[str]:
    """Yield the faults of ids and of references to them."""
    known: dict[str, PlannedCall] = {}
    for call in calls:
        if call.id in known:
            yield f"#{call.id} occurs twice: give each call its own number"
        known[call.id] = call
    for call in known.values():
        for need in call.needs:
            if need not in known and need not in broken:
                yield f"#{call.id} uses #{need}, which is not in the plan"
    try:
        TopologicalSorter({name: [n for n in call.needs if n in known] for name, call in known.items()}).prepare()
    except CycleError as error:
        circle = set(error.args[1])
        names = ", ".join(f"#{name}" for name in known if name in circle)
        yield f"{names} {'uses itself' if len(circle) == 1 else 'depend on each other in a circle'}"
