"""Check what enters or leaves a model: an input, an output, a tool's call, or its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, Self

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orchestrator.context import Context
from orchestrator.errors import AgentError, GraphUnknown, ModelError, ModelUnavailable
from orchestrator.graph.faults import Spelled
from orchestrator.graph.model import GraphDefinition, Node, Port
from orchestrator.graph.outcome import Outcome
from orchestrator.graph.reducers import append, replace
from orchestrator.json import digest, storable
from orchestrator.models.messages import Message, ToolCall
from orchestrator.models.text.conversation import WORDS
from orchestrator.nodes.conversation import ENDED, as_shown, failed
from orchestrator.nodes.decide import Decide
from orchestrator.nodes.route import GuardFault, cel_library, check_guard, read_guard, values_of
from orchestrator.nodes.templates import plain, text_of
from orchestrator.tools.stored_results import CHECKED, OFFLOADED, PART_OF, READ_RESULT, heading, id_of
from orchestrator.tools.validation import faults, linear, schema_faults

LARGEST = 1_000_000
"""Maximum number of characters that the rules read; they all apply to a longer value, which is not read."""
_INLINE = 20_000
"""Maximum number of characters that are searched on the event loop."""
_FORMS = ("patterns", "must_fit", "when", "asks")
_VALUE = "value"
_BEGINNING = 200
"""Number of characters by which the start of a result is found in its message."""
_MARK = "\ue000"
"""Stands for a match until it is replaced: a character for private use."""
_KEPT = ("output", "error", "exit_code", ENDED)
"""Facts that the message of a result keeps when its text is replaced; the first two are replaced, too."""
_UNREAD = f"the value has more than {LARGEST:,} characters"


def _is_default(value: object) -> bool:
    """Return True for an empty field, which data does not show."""
    return value in (None, "", (), "[removed]")


class Rule(BaseModel, metaclass=Spelled):
    """One rule of a `Guard`: when it applies, and what happens then. It has exactly one of four conditions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name in reasons and in the drawing. A reason never quotes what was found, which may be a secret."""
    patterns: tuple[str, ...] = Field(default=(), exclude_if=_is_default)
    """It applies if one of these regular expressions matches in any text of the value. They are matched in linear time:
    no look-around and no backreferences; `(?i)` at the start ignores case. With `then="change"`, they need the extra
    `route`."""
    must_fit: Any = Field(default=None, exclude_if=_is_default)
    """It applies if the value does not fit this JSON Schema. A text is read as JSON first, if it can be. A message is
    its text; one with calls is the object `{content, tool_calls: [{name, arguments}]}`."""
    when: str = Field(default="", exclude_if=_is_default)
    """It applies if this condition in CEL on `value` and the state's fields is true, or cannot be evaluated."""
    asks: str = Field(default="", exclude_if=_is_default)
    """It applies if a model answers yes to this question about the value, or gives no decision."""
    then: Literal["change", "ask", "stop"] = "stop"
    """`change`: each match, or without patterns the whole value, is replaced, and the next rule is tried. An object
    with a match in a name, and a text in which a match cannot be replaced, are replaced as a whole. A changed message
    loses its pictures and the provider's own fields, such as thoughts.
    `ask`: take the outcome `ask`, after all other rules. `stop`: take the outcome `stopped` at once."""
    replacement: str = Field(default="[removed]", exclude_if=_is_default)
    """The text in its place."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [form for form in _FORMS if not _is_default(getattr(self, form))]
        if len(given) != 1:
            raise ValueError(f"rule {self.name!r} needs exactly one condition: set one of {', '.join(_FORMS)}")
        for pattern in self.patterns:
            if linear(pattern) is None:
                raise ValueError(
                    f"rule {self.name!r}: the pattern {pattern!r:.80} cannot be matched in linear time: write it "
                    "without look-around and backreferences, in at most 500 characters"
                )
        for fault in schema_faults(self.must_fit) if self.must_fit is not None else ():
            raise ValueError(f"rule {self.name!r}: must_fit is a JSON Schema that {fault}")
        return self


class Guard(Node, kind="guard"):
    """Check a value by rules, and take `passed`, `ask` or `stopped`.

    With `value=` it checks a field: an input, an answer, or the message with a tool's result. With `tool=` and `args=`
    it checks a call that is about to be made; `value` is then the object of both. All texts in the value count, at any
    depth; of a message, its text and its calls, not the provider's own fields, such as thoughts. No rule reads a
    picture. The rules are tried in their order. `change` writes the changed value back and goes on; for a call it
    changes the arguments.

    Of a message that shows an excerpt or a part of a long result, as `Execute(offload=)` makes it, the rules read the
    whole result; only a model is asked about what is shown. If the result is changed, the message becomes an excerpt of
    the changed one, and `read_result` reads that. In a list of messages, each counts as it is.

    The outcome `ask` is there if a rule asks, and leads to the node that decides, usually a `Confirm`; `stopped` is
    there if a rule stops. The result of a tool that is stopped is withheld, with its pictures: its message says so
    instead. A value that is too large to be read, a condition that cannot be evaluated and a model without a decision
    count as if the rule applied.

    At most one rule asks a model, in one call for each step, and a second one after a reply without a decision.

    Raises:
        AgentError: the changed arguments of a call are not an object.
    """

    look = "code"

    fills = ("value", "args", "reason", "message")

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str = ""
        """The value to check."""

    value: Annotated[str | None, Port()] = None
    """Field with the value; with neither this nor `tool` and `args`, the field `question`."""
    tool: Annotated[str | None, Port(str)] = None
    """Field with the name of the tool that is about to be called."""
    args: Annotated[str | None, Port(dict)] = None
    """Field with its arguments."""
    call: Annotated[str | None, Port()] = None
    """Field with the model's `ToolCall` that they come from."""
    message: Annotated[str | None, Port()] = None
    """Field that gets, when the call is stopped, the message that explains to the model why."""
    reason: Annotated[str | None, Port(str)] = None
    """Field that gets the names of the rules that applied; None for no field."""
    rules: Annotated[tuple[Rule, ...], Field(examples=[[{"name": "keys", "patterns": ["sk-[a-z0-9]{16}"]}]])]
    """The rules, in the order in which they are tried."""

    @field_validator("rules")
    @classmethod
    def _check_rules(cls, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        if not rules:
            raise ValueError("there are no rules: add one, Rule(name=..., patterns=[...])")
        if sum(bool(rule.asks) for rule in rules) > 1:
            raise ValueError("two rules ask a model: use one guard for each, so that each call has a node of its own")
        return rules

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tool is None) != (self.args is None):
            raise ValueError("tool= and args= belong together: name both fields, or neither")
        if self.value is not None and self.tool is not None:
            raise ValueError("value= is for a field, tool= and args= for a call: name one of them")
        if (self.call is None) != (self.message is None) or (self.call is not None and self.tool is None):
            raise ValueError("call= and message= belong together, beside tool= and args=: name all of them")
        return self

    @property
    def field(self) -> str | None:
        """The field that is checked; None for a call."""
        return self.value or (None if self.tool is not None else "question")

    def ports(self) -> dict[str, str]:
        """See `Node.ports`."""
        found = super().ports()
        return found if self.field is None else {**found, "value": self.field}

    @property
    def outcomes(self) -> tuple[str, ...]:
        thens = {rule.then for rule in self.rules}
        return ("passed", *(["ask"] if "ask" in thens else []), *(["stopped"] if "stop" in thens else []))

    @property
    def asks_model(self) -> bool:
        """See `Node.asks_model`."""
        return any(rule.asks for rule in self.rules)

    @property
    def _asks(self) -> Literal["model"] | None:
        return "model" if self.asks_model else None

    @property
    def _look(self) -> Literal["model", "code"]:
        return "model" if self.asks_model else "code"

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        names = ", ".join(rule.name for rule in self.rules)
        return f"checks {names}" if len(names) < 32 else f"checks {len(self.rules)} rules"

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        fields = graph.schema.fields
        annotations: dict[str, object] = {field: graph.schema.field(field).annotation for field in fields}
        annotations[_VALUE] = None
        for rule in self.rules:
            try:
                if rule.when:
                    for unknown in set(read_guard(rule.when).fields).difference(annotations):
                        yield f"{name}: rule {rule.name!r} reads {unknown!r}, which is not a field of the state"
                        break
                    else:
                        check_guard(rule.when, annotations)
                if rule.patterns and rule.then == "change":
                    yield from _unsearchable(name, rule)
            except GuardFault as fault:
                yield f"{name}: the condition of rule {rule.name!r}, {rule.when!r:.200}, cannot be used: {fault}"
            except GraphUnknown as error:
                yield f"{name}: {error}"

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        given: Any = self._given(state)
        whole, checked = await self._whole(given, ctx)
        value, applied, asked = whole, list[str](), False
        large = _size(whole) > LARGEST
        for rule in self.rules:
            if checked and not rule.asks:
                continue
            about = as_shown(given, whole, value) if rule.asks else value
            if not large and not await self._applies(rule, about, state, ctx):
                continue
            applied.append(f"{rule.name} ({_UNREAD})" if large else rule.name)
            if rule.then == "stop":
                shown = as_shown(given, whole, value)
                return Outcome("stopped", self._update(state, given, shown, applied, stopped=True))
            asked = asked or rule.then == "ask"
            if rule.then == "change":
                value = rule.replacement if large or not rule.patterns else await _searched(_changed, value, rule)
                value = _as_before(value, whole)
        shown = await self._stored(given, whole, value, ctx)
        return Outcome("ask" if asked else "passed", self._update(state, given, shown, applied))

    async def _whole(self, given: Any, ctx: Context) -> tuple[Any, bool]:
        """Return the value, with the whole result in a message that shows a part of it, and True if this guard made
        that result: its rules do not apply to it again.
        """
        facts = (given.data or {}) if isinstance(given, Message) else {}
        id_ = facts.get(OFFLOADED) or facts.get(PART_OF)
        found = await ctx.tools.stored_result(id_) if isinstance(id_, str) else None
        if found is None:
            return given, False
        if found.checked_by == self._digest:
            return given, True
        start = heading(found.text) if OFFLOADED in facts else found.text[:_BEGINNING]
        notes = given.content[: max(0, given.content.find(start))] if given.name != READ_RESULT else ""
        return given.model_copy(update={"content": notes + found.text}), False

    async def _stored(self, given: Any, whole: Any, value: Any, ctx: Context) -> Any:
        """Return what the model is shown. A changed result that it can read on is stored under an id of its own: the
        model never learns the id of the result that the tool returned.
        """
        shown = as_shown(given, whole, value)
        if shown is given or shown is value or OFFLOADED not in (shown.data or {}):
            return shown

        async def changed(*identity: str) -> str:
            return str(value.content)

        _ = ctx.run_id  # the id is of this run, so the node's result must not be reused by others (`cache=`)
        text = await ctx.effect(CHECKED, changed, id_of(value.content), self._digest, returns=str, effect="pure")
        return as_shown(given, whole, value.model_copy(update={"content": text}))

    @property
    def _digest(self) -> str:
        return digest([rule.model_dump(mode="json") for rule in self.rules])

    def _given(self, state: object) -> Any:
        if self.field is not None:
            return getattr(state, self.field)
        return {"tool": getattr(state, self.tool or ""), "args": getattr(state, self.args or "")}

    async def _applies(self, rule: Rule, value: Any, state: object, ctx: Context) -> bool:
        if rule.patterns:
            return bool(await _searched(_matches, value, rule))
        if rule.must_fit is not None:
            return bool(faults(_as_data(value), rule.must_fit, rule.must_fit))
        if rule.when:
            names = [name for name in read_guard(rule.when).fields if hasattr(state, name)]
            values = {**plain({name: getattr(state, name) for name in names}), **plain({_VALUE: value})}
            return values_of({"": rule.when}, values, {})[""] is not False
        decide = Decide(yes_no=True, criteria=rule.asks)
        try:
            return (await decide.decide(text_of(_read(value)), ctx, bare=True)).choice != "no"
        except ModelUnavailable:
            raise  # the run goes on once the model is reached
        except (AgentError, ModelError):
            return True

    def _update(
        self, state: object, given: Any, value: Any, applied: Sequence[str], *, stopped: bool = False
    ) -> dict[str, object]:
        update: dict[str, object] = {}
        why = ", ".join(applied)
        withheld = stopped and isinstance(value, Message) and value.role == "tool"
        value = _replaced(value, f"Error: a guard withheld this result: {why}") if withheld else value
        if value is not given and self.field is not None:
            info = getattr(type(state), "model_fields", {}).get(self.field)
            update[self.field] = replace(value) if info is not None and append in info.metadata else value
        elif value is not given and self.args is not None:
            args = value["args"] if isinstance(value, Mapping) else value
            if not isinstance(args, Mapping):
                raise AgentError("guard: the changed arguments of the call are not an object: use then='stop' instead")
            update[self.args] = args
        if self.reason is not None and applied:
            update[self.reason] = why
        if stopped and self.call is not None and self.message is not None:
            call = ToolCall.model_validate(getattr(state, self.call))
            update[self.message] = failed(call, f"a guard stopped this call: {why}")
        return update


# -- searching and changing texts -----------------------------------------------------------------------------------


async def _searched(work: Callable[[Any, Rule], Any], value: Any, rule: Rule) -> Any:
    """Search a value, in a thread if it is large."""
    if _size(value) <= _INLINE:
        return work(value, rule)
    return await anyio.to_thread.run_sync(work, value, rule)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, with the names in objects; of a message, what a model is shown."""
    ahead = [value]
    while ahead:
        one = ahead.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Message):
            ahead += [one.content, *one.tool_calls]
        elif isinstance(one, ToolCall):
            ahead += [one.name, one.raw, one.arguments]
        elif isinstance(one, Mapping):
            ahead += [*one, *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            ahead += one
        elif not isinstance(one, int | float | None):
            ahead.append(_as_stored(one))


def _as_stored(value: Any) -> Any:
    """Return a value of any other class, such as a model, a dataclass, an address or bytes, as the JSON that it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else plain({_VALUE: value})[_VALUE]


def _size(value: Any) -> int:
    return sum(map(len, _texts(value)))


def _read(value: Any) -> Any:
    """Return a value as a rule reads it: a message as its text, or as an object if it makes calls."""
    if not isinstance(value, Message):
        return value
    calls = [
        {"name": one.name, "arguments": one.raw if one.arguments is None else one.arguments} for one in value.tool_calls
    ]
    return {"content": value.content, "tool_calls": calls} if calls else value.content


def _as_data(value: Any) -> Any:
    """Return a value as plain JSON; a text that is JSON as what it stands for."""
    data = plain({_VALUE: _read(value)})[_VALUE]
    try:
        return json.loads(data) if isinstance(data, str) else data
    except (ValueError, RecursionError):
        return data


@lru_cache(maxsize=64)
def _tests(patterns: tuple[str, ...]) -> tuple[Callable[[str], bool], ...]:
    return tuple(test for test in map(linear, patterns) if test is not None)


def _matches(value: Any, rule: Rule) -> bool:
    tests = _tests(rule.patterns)
    return any(test(storable(text)) for text in _texts(value) for test in tests)


def _unsearchable(name: str, rule: Rule) -> Iterator[str]:
    for pattern in rule.patterns:
        found = _replacing().eval(data={"text": "", "pattern": pattern, "new": ""})
        if found.type().name() != "STRING":
            yield f"{name}: rule {rule.name!r} cannot replace matches of {pattern!r:.200}: {found}"


def _changed(value: Any, rule: Rule) -> Any:
    """Return the value with each match replaced. An object with a match in a name is replaced as a whole."""
    if isinstance(value, str):
        return _changed_text(value, rule)
    if isinstance(value, Message | ToolCall) and not _matches(value, rule):
        return value
    if isinstance(value, Message):
        calls = [_changed(call, rule) for call in value.tool_calls]
        return _with_content(value, _changed_text(value.content, rule), calls, value.data or {})
    if isinstance(value, ToolCall):
        renamed = value.model_copy(update={"name": _changed_text(value.name, rule)})
        return _with_arguments(renamed, _changed(value.raw if value.arguments is None else value.arguments, rule))
    if isinstance(value, Mapping):
        if _matches(list(value), rule):
            return rule.replacement
        return {name: _changed(inner, rule) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_changed(inner, rule) for inner in value]
    if isinstance(value, int | float | None) or not _matches(value, rule):
        return value
    return _changed(_as_stored(value), rule)  # which the field reads back


def _changed_text(text: str, rule: Rule) -> str:
    """Return a text with each match replaced; the replacement alone if a match stays, or a new one came about.

    One engine searches and another replaces, and some patterns mean more to the first: its `\\s` is white space of any
    script, and its `\\d` a digit of any. What stood around a match may be another one together.
    """
    rest = without(storable(text), rule.patterns, _MARK)
    if _matches(rest, rule) and _matches(rest.split(_MARK), rule):
        return rule.replacement
    changed = rest.replace(_MARK, rule.replacement)
    new = _matches(changed, rule) and not _matches(rule.replacement, rule)
    return rule.replacement if new else changed


def _replaced(message: Message, text: str) -> Message:
    """Return a message with a text in place of all that it says, and of the arguments of its calls."""
    kept = {name: fact for name, fact in (message.data or {}).items() if name in _KEPT}
    return _with_content(message, text, [_with_arguments(call, text) for call in message.tool_calls], kept)


def _with_content(message: Message, text: str, calls: Sequence[ToolCall], facts: Mapping[str, Any]) -> Message:
    """Return a message with another text and other calls, and without what still shows the earlier ones."""
    facts = {name: fact for name, fact in facts.items() if name not in (WORDS, OFFLOADED, PART_OF)}
    facts |= {"output": text} if "output" in facts else {}
    facts |= {"error": text} if facts.get("error") is not None else {}
    bare = tuple(call.model_copy(update={"extras": {}}) for call in calls)
    update = {"content": text, "tool_calls": bare, "data": facts or None, "images": (), "extras": {}}
    return message.model_copy(update=update)


def _with_arguments(call: ToolCall, arguments: Any) -> ToolCall:
    """Return a call with other arguments, without the provider's fields; with a text for them, it cannot be made."""
    if isinstance(arguments, Mapping):
        return call.model_copy(update={"arguments": arguments, "raw": "", "extras": {}})
    return call.model_copy(update={"arguments": None, "raw": arguments, "extras": {}})


def _as_before(value: Any, given: Any) -> Any:
    """Return a value that replaces a whole message, or a call, in the form that it had."""
    if isinstance(given, Message) and isinstance(value, str):
        return _replaced(given, value)
    return value


_REPLACING = """\
name: replacing
extensions: [{name: optional}, {name: regex}]
variables: [{name: text, type_name: string}, {name: pattern, type_name: string}, {name: new, type_name: string}]
"""


@cache
def _replacing() -> Any:
    """Return the CEL expression that replaces matches, which are found in linear time by RE2.

    Raises:
        GraphUnknown: the library is not installed.
    """
    cel = cel_library()
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(_REPLACING)).compile("regex.replace(text, pattern, new)")


def without(text: str, patterns: Sequence[str], replacement: str) -> str:
    """Return a text in which each match is replaced; if it cannot be searched, the replacement alone.

    Args:
        text: the text.
        patterns: the patterns.
        replacement: the text in place of each match, verbatim.
    """
    for pattern in patterns:
        given = {"text": text, "pattern": pattern, "new": replacement.replace("\\", "\\\\")}
        found = _replacing().eval(data=given)
        if found.type().name() != "STRING":
            return replacement
        text = found.plain_value()
    return text
