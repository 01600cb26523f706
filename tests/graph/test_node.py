"""Nodes: functions and kinds, what they declare and what they are given."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field, ValidationError

from orchestrator.errors import GraphError, GraphUnknown
from orchestrator.graph import FunctionNode, Node, Outcome, Port, Retry, Update, node, node_data, node_from_data
from tests.graph import sample

D = TypeVar("D")


class Context(Generic[D]):
    """Stands for the real one: nodes know it by its name alone."""


class State(BaseModel):
    x: int = 0


ctx = SimpleNamespace(item="the item", deps="the deps")


async def run(fn: FunctionNode) -> object:
    return await fn.run(State(x=7), ctx)


# -- functions --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_arguments_are_injected_by_name() -> None:
    @node
    def everything(deps: object, state: State, item: object, ctx: object) -> Update:
        return {"got": (deps, state.x, item, ctx)}

    assert await run(everything) == {"got": ("the deps", 7, "the item", ctx)}


@pytest.mark.anyio
async def test_arguments_are_injected_by_annotation() -> None:
    @node
    async def by_type(context: Context[str], /, s: State, *, item: str) -> object:
        return (context, s.x, item)

    assert await run(by_type) == (ctx, 7, "the item")


@pytest.mark.anyio
async def test_an_argument_with_a_default_is_left_alone() -> None:
    functions = [node(lambda state, number=number: number) for number in range(3)]
    assert [await run(function) for function in functions] == [0, 1, 2]


@pytest.mark.anyio
async def test_no_arguments_partials_methods_and_callable_objects() -> None:
    class Thing:
        def method(self, state: State) -> Outcome[Literal["m"]]:
            return Outcome("m")

        async def __call__(self, state: State) -> Outcome[Literal["c"]]:
            return Outcome("c")

    def two(state: State, factor: int) -> object:
        return state.x * factor

    assert await run(node(lambda: 1)) == 1
    assert await run(node(functools.partial(two, factor=2))) == 14
    assert node(Thing().method).outcomes == ("m",)
    thing = node(Thing())
    assert (thing.outcomes, thing.is_async, thing.sync_fn) == (("c",), True, None)
    assert await run(thing) == Outcome("c")


def test_a_sync_function_can_be_called_without_a_loop() -> None:
    @node(effect="pure")
    def double(state: State) -> object:
        return state.x * 2

    assert double.sync_fn is not None
    assert double.sync_fn(State(x=2), ctx) == 4
    assert double(State(x=3)) == 6


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda stat: 1,
            (
                "node function <lambda> wants 'stat', which a node cannot receive: "
                "a node takes state, ctx, item and deps, by name or annotation"
            ),
        ),
        (lambda *args: 1, "wants '*args'"),
        (lambda **kw: 1, "wants '**kw'"),
    ],
)
def test_an_argument_that_nothing_can_be_given_for_is_named(fn: Any, message: str) -> None:
    with pytest.raises(GraphError) as raised:
        node(fn)
    assert message in str(raised.value)


def test_a_generator_is_no_node() -> None:
    def steps(state: State) -> Any:
        yield 1

    with pytest.raises(GraphError, match="node function steps is a generator: return an Outcome or an update"):
        node(steps)


# -- outcomes ---------------------------------------------------------------------------------------------------


def test_outcomes_come_from_the_return_annotation() -> None:
    def done(state: State) -> Update: ...
    def silent(state): ...  # type: ignore[no-untyped-def]
    def two(state: State) -> Outcome[Literal["good", "retry"]]: ...
    def optional(state: State) -> Outcome[Literal["good"]] | None: ...
    def annotated(state: State) -> Annotated[Outcome[Literal["good"]], "why"]: ...

    found = [node(fn).outcomes for fn in (done, silent, two, optional, annotated)]
    assert found == [("done",), ("done",), ("good", "retry"), ("good", "done"), ("good",)]


def test_outcomes_keep_the_order_in_which_they_are_written() -> None:
    """Equal annotations in another order, evaluated before, change nothing: the graph's digest depends on the order."""

    def one(state: State) -> Outcome[Literal["one", "two"]]: ...
    def other(state: State) -> Outcome[Literal["two", "one"]]: ...
    def maybe(state: State) -> Outcome[Literal["one", "two"]] | None: ...
    def other_maybe(state: State) -> Outcome[Literal["two", "one"]] | None: ...
    def later(state: State) -> Awaitable[Outcome[Literal["one", "two"]]]: ...
    def other_later(state: State) -> Awaitable[Outcome[Literal["two", "one"]]]: ...

    functions = (one, other, maybe, other_maybe, later, other_later)
    assert ["".join(word[0] for word in node(fn).outcomes) for fn in functions] == [
        "ot", "to", "otd", "tod", "ot", "to",
    ]  # fmt: skip


def test_declared_outcomes_win() -> None:
    @node(outcomes=["a", "b"])
    def either(state: State) -> Outcome[str]: ...

    assert either.outcomes == ("a", "b")


def test_a_result_that_no_node_can_return_is_refused_with_its_fix() -> None:
    def chosen(state: State) -> Literal["good", "bad"]: ...
    async def text(state: State) -> str | None: ...

    fix = r"to name its outcome, annotate Outcome\[Literal\['good', 'bad'\]\]"
    with pytest.raises(GraphError, match=rf"node function chosen returns Literal\['good', 'bad'\], .*{fix}"):
        node(chosen)
    with pytest.raises(GraphError, match=rf"node function text returns str, .*{fix}"):
        node(text)


def test_an_outcome_that_is_not_listed_is_an_error_with_its_mend() -> None:
    def bare(state: State) -> Outcome: ...  # type: ignore[type-arg]
    def some(state: State) -> Outcome[str]: ...

    with pytest.raises(GraphError, match=r"node function bare returns an Outcome without its names: annotate"):
        node(bare)
    with pytest.raises(GraphError, match=r"does not list its outcomes: write Outcome\[Literal\['good', 'bad'\]\]"):
        node(some)
    with pytest.raises(GraphError, match=r"outcomes must be a list of names: write outcomes=\('a',\)"):
        node(outcomes="a")(some)


def test_an_outcome_is_frozen_and_equal_by_value() -> None:
    outcome = Outcome("good", {"score-x": 1}, score=2)
    assert outcome.update == {"score-x": 1, "score": 2}
    assert outcome == Outcome("good", {"score-x": 1, "score": 2})
    assert outcome != Outcome("good")
    assert repr(Outcome("good", score=2)) == "Outcome('good', score=2)"
    with pytest.raises(AttributeError, match="an Outcome is frozen"):
        outcome.name = "bad"  # type: ignore[misc]


# -- options ----------------------------------------------------------------------------------------------------


def test_a_node_can_be_had_again_with_other_options() -> None:
    again = sample.grade.with_(join="all", retry=None, reads=("drafts",))
    assert (again.join, again.retry, again.reads) == ("all", None, frozenset({"drafts"}))
    assert (sample.grade.join, sample.grade.retry) == (None, Retry(attempts=5))
    assert again.outcomes == sample.grade.outcomes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"join": 0}, "how many branches to wait for"),
        ({"join": True}, "how many branches to wait for"),
        ({"join": "two of them"}, "the state field with that number"),
        ({"rest": "run"}, "join=2"),
        ({"join": "all", "rest": "run"}, "join=2"),
        ({"timeout": 0}, "greater than 0"),
        ({"effect": "none"}, "effect"),
        ({"reads": "drafts"}, r"write reads=\{'drafts'\}"),
        ({"retrys": 1}, "did you mean 'retry'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        sample.write.with_(**options)


def test_a_node_is_frozen() -> None:
    with pytest.raises(ValidationError):
        sample.write.join = "all"  # type: ignore[misc]


# -- kinds ------------------------------------------------------------------------------------------------------


def test_a_kind_is_a_class_with_its_own_outcomes_and_ports() -> None:
    class AskTwice(Node):
        questions: Annotated[tuple[str, ...], Port(str)] = ("q",)
        answer: Annotated[str | None, Port()] = "a"
        other: Annotated[str | None, Port()] = None
        rest: Annotated[Mapping[str, str], Port()] = Field(default={"k": "v"})

        async def run(self, state: object, ctx: object) -> Outcome[Literal["yes", "no"]]:
            return Outcome("yes")

    assert AskTwice.kind == "ask_twice"
    assert Node.kinds["ask_twice"] is AskTwice
    assert AskTwice().outcomes == ("yes", "no")
    assert AskTwice().ports() == {"questions[0]": "q", "answer": "a", "rest[k]": "v"}
    assert AskTwice(answer="b").ports()["answer"] == "b"


def test_a_kind_inherits_outcomes_unless_it_says_its_own() -> None:
    class First(Node, outcomes=("a", "b")):
        pass

    class Same(First):
        async def run(self, state, ctx): ...  # type: ignore[no-untyped-def]

    class Other(First):
        async def run(self, state: object, ctx: object) -> Outcome[Literal["c"]]: ...

    assert (First().outcomes, Same().outcomes, Other().outcomes) == (("a", "b"), ("a", "b"), ("c",))


def test_a_kind_of_the_library_cannot_be_taken() -> None:
    with pytest.raises(TypeError, match=r"node kind 'function' of .*Mine is one of the library's"):

        class Mine(Node, kind="function"):
            pass


# -- data -------------------------------------------------------------------------------------------------------


def test_a_function_is_data_by_its_reference() -> None:
    data = node_data(sample.grade)
    assert data["ref"] == "tests.graph.sample:grade"
    assert data["outcomes"] == ["good", "retry"]
    assert node_from_data(data, resolve=True) == sample.grade


def test_a_closure_has_no_reference() -> None:
    def inner(state: State) -> None: ...

    assert node(inner).ref is None
    assert node(lambda: None).ref is None
    assert node_data(node(inner)) == {"kind": "function", "ref": None, "name": "inner", "outcomes": ["done"]}


def test_a_name_that_stands_for_another_function_is_no_reference() -> None:
    def grade(state: State) -> None: ...

    grade.__module__, grade.__qualname__ = "tests.graph.sample", "grade"
    assert node(grade).ref is None


def test_a_kind_of_the_user_is_data_with_its_class() -> None:
    ask = sample.Ask(prompt="Go?", join="all")
    data = node_data(ask)
    assert data == {
        "kind": "ask_sample",
        "class": "tests.graph.sample:Ask",
        "outcomes": ["approved", "denied"],
        "join": "all",
        "prompt": "Go?",
        "reason": None,
    }
    assert node_from_data(data, resolve=True) == ask


@pytest.mark.anyio
async def test_without_its_code_a_node_stands_there_unresolved() -> None:
    data = node_data(sample.Ask(prompt="Go?", join="all"))
    still = node_from_data(data)
    assert (still.kind, still.outcomes, still.join) == ("unresolved", ("approved", "denied"), "all")
    assert node_data(still) == data
    with pytest.raises(GraphUnknown, match=r"the code of a node \(ask_sample tests.graph.sample:Ask\) is not loaded"):
        await still.run(None, None)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({}, GraphError, "a node written as data needs a 'kind'"),
        ({"kind": "function", "ref": "tests.graph.sample:nothing"}, GraphUnknown, "has no 'nothing'"),
        ({"kind": "function", "ref": "no_such_module:f"}, GraphUnknown, "there is no module 'no_such_module'"),
        ({"kind": "function", "ref": "sample"}, GraphUnknown, "'sample' is not a reference: write 'module:attribute'"),
        ({"kind": "function", "ref": None, "name": "f"}, GraphUnknown, "function 'f' has no reference"),
        ({"kind": "function", "ref": "tests.graph.sample:plain", "promt": ""}, GraphError, "has no 'promt'"),
        ({"kind": "nothing_like_it"}, GraphUnknown, "there is no node kind 'nothing_like_it'"),
        (
            {"kind": "ask_sample", "class": "tests.graph.sample:Ask", "promt": "x"},
            GraphError,
            "node of kind 'ask_sample' has no 'promt': did you mean 'prompt'?",
        ),
    ],
)
def test_data_that_is_no_node_says_why(data: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        node_from_data(data, resolve=True)
    assert message in str(raised.value)


class CallTraced(FunctionNode, kind="call_traced"):
    def call(self, state: object, ctx: object) -> object:
        return super().call(State(x=40), ctx)


class RunTraced(FunctionNode, kind="run_traced"):
    async def run(self, state: object, ctx: object) -> object:
        return await super().run(State(x=40), ctx)


@pytest.mark.parametrize("kind", [CallTraced, RunTraced])
@pytest.mark.anyio
async def test_a_subclass_that_calls_its_function_in_a_way_of_its_own_is_asked(kind: Any) -> None:
    @node
    async def adds(state: State) -> Update:
        return {"x": state.x + 1}

    assert await adds._begin(State(x=1), ctx) == {"x": 2}
    own = kind(**{name: getattr(adds, name) for name in adds.model_fields_set})
    assert await own._begin(State(x=1), ctx) == {"x": 41}
