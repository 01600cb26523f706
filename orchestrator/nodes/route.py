"""Choose the next edge by conditions on the state.

Guards are conditions in CEL, the Common Expression Language (https://cel.dev), evaluated by `cel-expr-python`. CEL has
no loops, no assignments and no side effects. A guard is checked against the types of the state's fields when the graph
is built. The cost of an evaluation is bounded by the length of the guard, by the size of the data that it reads, and by
the small number of comprehensions allowed.
"""

from __future__ import annotations

import contextlib
import json
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import Field, field_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, GraphUnknown, install_command
from orchestrator.graph.model import Effect, GraphDefinition, Node, Port
from orchestrator.graph.outcome import Guarded
from orchestrator.graph.topology import ANY
from orchestrator.nodes.templates import plain


class Route(Node, kind="route"):
    """Take the outcome of the first case whose guard is true, else `default`.

    A guard is a condition on state fields in CEL, the Common Expression Language (https://cel.dev):
    `Route(cases={"billing": "kind == 'billing' && score > 0.5"}, default="other")`. Guards need the extra `route`. They
    are checked against the types of the fields when the graph is built. CEL has no types for optional fields, models
    and dates, so their contents are first checked during a run: `has(user.age) && user.age > 17`.

    All guards are evaluated, and their values are part of the run: `show`, `why` and the page of a run display them.
    The cost is bounded: a guard has at most 2,000 characters, reads at most 1,000,000, and has at most one
    comprehension.

    Raises:
        AgentError: no guard is true and there is no `default`, or a guard before the first true one cannot be
            evaluated.
    """

    look = "code"

    in_order = ("cases",)
    fills = ()

    effect: Effect = "pure"
    """It reads only the state."""
    cases: Annotated[Mapping[str, str], Port(), Field(examples=[{"long": "size(question) > 200"}])]
    """Outcome -> guard, in the order in which they are tried."""
    default: Annotated[str | None, Field(examples=["short"])] = None
    """The outcome if no guard is true. None: the step fails, and an edge for `error` can handle that."""

    @field_validator("cases")
    @classmethod
    def _check_cases(cls, cases: Mapping[str, str]) -> Mapping[str, str]:
        if not cases:
            raise ValueError("there are no cases: add one, an outcome and its guard")
        return cases

    @property
    def outcomes(self) -> tuple[str, ...]:
        more = () if self.default is None or self.default in self.cases else (self.default,)
        return (*self.cases, *more)

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return f"by {', '.join(fields_of_guards(self.cases)) or 'guards'}"

    def ports(self) -> dict[str, str]:
        """See `Node.ports`: the fields that the guards read."""
        return {f"cases[{name}]": name for name in fields_of_guards(self.cases)}

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        schema = graph.schema
        annotations = {field: schema.field(field).annotation for field in schema.fields}
        for outcome, text in self.cases.items():
            try:
                if set(fields_of_guards({outcome: text}, schema.fields)).issubset(schema.fields):
                    check_guard(text, annotations)
            except GuardFault as fault:
                yield f"guard {outcome!r} of {name}, {text!r:.200}, cannot be used: {fault}"
            except GraphUnknown as error:
                yield f"{name}: {error}"
                return
        sources = (name, ANY)
        if self.default is None and not any(one.source in sources and one.outcome == "error" for one in graph.edges):
            yield f"{name} takes no edge where no guard is true: set default=, or add '{name} -> NODE : error'"

    async def run(self, state: object, ctx: Context) -> Guarded[str]:
        names = fields_of_guards(self.cases)
        values = plain({name: getattr(state, name) for name in names if hasattr(state, name)})
        fields = getattr(type(state), "model_fields", {})
        annotations = {name: fields[name].annotation if name in fields else None for name in names}
        guards = values_of(self.cases, values, annotations)
        for outcome, value in guards.items():
            if value is True:
                return Guarded(outcome, guards=guards)
            if value is not False:
                raise failure_of_guards(ctx.node, {outcome: value}, self.cases, values)
        if self.default is None:
            raise failure_of_guards(ctx.node, guards, self.cases, values)
        return Guarded(self.default, guards=guards)


LONGEST = 2_000
"""Maximum number of characters of a guard."""
LARGEST = 1_000_000
"""Maximum number of characters of the data that a guard reads, written as JSON."""
MOST_WORK = 100_000_000
"""The most work of an evaluation, which may take half a second: the characters read, times the cost of the guard, and
for a comprehension times the items of the longest list.
"""

NEEDS_EXTRA = f"guards need the extra `route`: {install_command('route')}"

_TOKEN = re.compile(
    r"""
    (?P<text> (?:[bB]?[rR]|[rR][bB]) (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "[^"\n]*" | '[^'\n]*' )
            | [bB]? (?: \"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3}
                      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' ) )
    | (?P<comment> //[^\n]* )
    | (?P<number> (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\w* )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<space> \s+ )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset({"true", "false", "null", "in"})
_TYPES = frozenset({"bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"})
_LOOPS = frozenset({"all", "exists", "exists_one"})
_BUILDERS = frozenset({"filter", "map", "transformList", "transformMap", "transformMapEntry"})
_PLACE = re.compile(r"<input>:(\d+):(\d+): (.*?)(?:\n|$)", re.DOTALL)
_CODE = re.compile(r"^(?:[A-Z_]+: )+|\s*\[[A-Z_]+\]\s*$")

Value = bool | str
"""The value of a guard: true or false, or the reason why it cannot be evaluated."""


class _Token(NamedTuple):
    kind: str
    text: str


class GuardFault(ValueError):
    """Raised when a guard cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class Guard:
    """A condition, as text, and the fields that it reads."""

    text: str
    fields: tuple[str, ...]
    """The state fields that it names, in order."""
    loops: bool
    """True if it has a comprehension."""
    cost: int
    """The most times that all its data is read and copied: concatenated texts are copied again and again."""


@lru_cache(maxsize=1024)
def read_guard(text: str) -> Guard:
    """Parse a guard and find the fields that it names.

    Raises:
        GuardFault: it is too long, or has a comprehension that could take long.
    """
    if len(text) > LONGEST:
        raise GuardFault(f"it has {len(text):,} characters; the limit for a guard is {LONGEST:,}")
    tokens = [token for token in _tokens(text) if token.kind not in ("space", "comment")]
    around = [_Token("mark", ""), *tokens, _Token("mark", "")]
    names: dict[str, None] = {}
    bound: set[str] = set()
    loops = calls = 0
    for before, token, after in zip(around, tokens, around[2:], strict=False):
        if token.kind != "name":
            continue
        calls += after.text == "("
        if before.text == "." and after.text == "(":
            if token.text in _BUILDERS:
                raise GuardFault(f".{token.text}() builds a list, which guards cannot do: use .exists() or .all()")
            loops += token.text in _LOOPS
        elif before.text != "." and after.text != "(":
            names[token.text] = None
    if loops > 1:
        raise GuardFault("it has more than one of .all(), .exists() and .exists_one(): use one, or several cases")
    if loops:
        bound.update(_variables(tokens))
    fields = tuple(name for name in names if name not in _WORDS and name not in bound)
    added = sum(token.text == "+" for token in tokens)
    return Guard(text, fields, loops > 0, (1 + added) ** 2 + calls)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        yield _Token(match.lastgroup or "", match[0])


def _variables(tokens: Sequence[_Token]) -> Iterator[str]:
    """Yield the variables that comprehensions bind: `x` in `.exists(x, ...)`."""
    for place, token in enumerate(tokens[:-2]):
        if token.text in _LOOPS and tokens[place + 1].text == "(" and tokens[place + 2].kind == "name":
            yield tokens[place + 2].text


def fields_of_guards(guards: Mapping[str, str], known: Collection[str] = ()) -> tuple[str, ...]:
    """Return the state fields that guards name, without those of faulty guards.

    Args:
        guards: the guards.
        known: fields of the state; any other name can be one of CEL's types.
    """
    found: dict[str, None] = {}
    for text in guards.values():
        with contextlib.suppress(GuardFault):
            found |= {name: None for name in read_guard(text).fields if name in known or name not in _TYPES}
    return tuple(found)


# -- checking --------------------------------------------------------------------------------------------------------


def check_guard(text: str, annotations: Mapping[str, object]) -> None:
    """Check a guard against the types of the fields.

    Args:
        text: the guard.
        annotations: field -> its annotation; None if not known.

    Raises:
        GuardFault: the guard is not valid, or is not true or false; the error names the place.
        GraphUnknown: the library is not installed.
    """
    guard = read_guard(text)
    compiled = _compiled(text, tuple((name, _type(annotations[name])) for name in guard.fields if name in annotations))
    given = compiled.return_type().name()
    if given not in ("BOOL", "DYN"):
        raise GuardFault(f"it gives {given.lower()}, and a guard gives true or false")


@lru_cache(maxsize=1024)
def _compiled(text: str, fields: tuple[tuple[str, str], ...]) -> Any:
    cel = cel_library()
    try:
        return cel.NewEnv(variables={name: cel.Type(spelt) for name, spelt in fields}).compile(text)
    except (RuntimeError, ValueError, UnicodeError) as error:
        raise GuardFault(_told(str(error))) from None


def cel_library() -> Any:
    """Return the library of CEL.

    Raises:
        GraphUnknown: it is not installed.
    """
    try:
        return import_module("cel_expr_python.cel")  # the field has no known type
    except ImportError as error:
        raise GraphUnknown(NEEDS_EXTRA) from error


def _told(fault: str) -> str:
    """Return a fault in the words of the library, with its place and without details for other programs."""
    place = _PLACE.search(fault)
    if place is None:
        return _CODE.sub("", fault).strip()
    line, column, words = place.groups()
    at = f"column {column}" if line == "1" else f"line {line}, column {column}"
    fix = "; beside a float, write whole numbers as 1.0" if "double, int" in words or "int, double" in words else ""
    return f"{at}: {words.strip()}{fix}"


def _type(annotation: object) -> str:
    """Return the CEL type for a field's annotation; `dyn` if CEL has none."""
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0])
    if origin is Literal and all(isinstance(arg, str) for arg in args):
        return "string"
    if origin in (list, set, frozenset, Sequence) and len(args) == 1:
        return f"list<{_type(args[0])}>"
    if origin in (dict, Mapping) and len(args) == 2 and args[0] is str:
        return f"map<string, {_type(args[1])}>"
    if origin in (Union, types.UnionType):
        kinds = {_type(arg) for arg in args}
        return kinds.pop() if len(kinds) == 1 else "dyn"
    return "dyn"


_SIMPLE: dict[object, str] = {str: "string", bool: "bool", int: "int", float: "double"}


# -- evaluating ------------------------------------------------------------------------------------------------------


def values_of(
    guards: Mapping[str, str], values: Mapping[str, Any], annotations: Mapping[str, object]
) -> dict[str, Value]:
    """Evaluate guards.

    Args:
        guards: the guards, by the outcome that each leads to.
        values: field -> its value as plain JSON.
        annotations: field -> its annotation.

    Returns:
        The value of each guard.

    Raises:
        GraphUnknown: the library is not installed.
    """
    return {outcome: _evaluated(text, values, annotations) for outcome, text in guards.items()}


def _evaluated(text: str, values: Mapping[str, Any], annotations: Mapping[str, object]) -> Value:
    try:
        guard = read_guard(text)
        kinds = {name: _type(annotations.get(name)) for name in guard.fields if name in values}
        _check_size(guard, {name: values[name] for name in kinds})
        given = {name: _fit(values[name], kind) for name, kind in kinds.items()}
        result = _compiled(text, tuple(kinds.items())).eval(data=given)
        found = result.plain_value()
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        return _told(str(error))
    if isinstance(found, bool):
        return found
    if result.type().name() == "ERROR":
        return _told(str(result))
    return f"it gives {result.type().name().lower()}, and a guard gives true or false"


def _check_size(guard: Guard, values: Mapping[str, Any]) -> None:
    size = len(json.dumps(values, ensure_ascii=False))
    longest = max((_longest(value) for value in values.values()), default=0) if guard.loops else 1
    if size > LARGEST or size * max(longest, 1) * guard.cost > MOST_WORK:
        items = f", its longest list {longest:,} items" if guard.loops else ""
        raise GuardFault(f"its data are too large for the work that it does on them: {size:,} characters{items}")


def _longest(value: object) -> int:
    """Return the length of the longest list or mapping in a value."""
    if isinstance(value, Mapping):
        return max(len(value), *map(_longest, value.values()), 0)
    if isinstance(value, list | tuple):
        return max(len(value), *map(_longest, value), 0)
    return 0


def _fit(value: Any, kind: str) -> Any:
    """Return a value as CEL expects it for its type: a float that JSON writes as 1 is still a float."""
    if kind == "double" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind.startswith("list<") and isinstance(value, list | tuple):
        return [_fit(item, kind[5:-1]) for item in value]
    if kind.startswith("map<string, ") and isinstance(value, Mapping):
        return {key: _fit(item, kind[12:-1]) for key, item in value.items()}
    return value


def failure_of_guards(
    node: str, values: Mapping[str, Value], cases: Mapping[str, str], read: Mapping[str, object]
) -> AgentError:
    """Return the error of a node for which no guard is true.

    Args:
        node: its name.
        values: outcome -> the value of its guard; a text is the reason why it could not be evaluated.
        cases: outcome -> guard.
        read: the values that the guards read. The error names only their types, since values may be long or secret.
    """
    for outcome, value in values.items():
        if isinstance(value, str):
            text = cases[outcome]
            kinds = ", ".join(f"{name}: {_kind_of(read.get(name))}" for name in fields_of_guards({outcome: text}))
            return AgentError(
                f"{node}: guard {outcome!r}, {text!r:.200}, cannot be evaluated: {value:.600}"
                + (f" (types of the values: {kinds})" if kinds else "")
            )
    return AgentError(f"{node}: no guard is true: {', '.join(values)}; name a default")


def _kind_of(value: object) -> str:
    """Return the type of a value that a guard read, in the words of JSON Schema."""
    if isinstance(value, bool):
        return "boolean"
    names: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (Mapping, "object"),
        (list, "array"),
    )
    return "null" if value is None else next((name for kind, name in names if isinstance(value, kind)), "unknown")
