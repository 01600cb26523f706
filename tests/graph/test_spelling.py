"""Natural mistakes in code are answered with the thing, the fault and the fix."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

import orchestrator
from orchestrator import Approve, Deny, Graph, Limits, Message, Retry, Value, graph, node, nodes
from orchestrator.errors import GraphError, InvalidInput
from orchestrator.graph import Node, Usage
from orchestrator.graph.faults import Spelled, names_of
from orchestrator.nodes import Complete, Confirm, Subgraph


class State(BaseModel):
    n: int = 0
    user: str = Field("", alias="userName")


@node(effect="pure")
def one(state: State) -> dict[str, int]:
    return {"n": 1}


GRAPH = Graph(name="g", state=State, nodes={"one": one}, edges="START -> one -> END", output="n")


PUBLIC = [getattr(room, name) for room in (orchestrator, graph, nodes) for name in room.__all__]
MODELS = list(dict.fromkeys(one for one in PUBLIC if isinstance(one, Spelled)))
"""Those that users make by calling them."""


def test_all_node_kinds_answers_and_settings_are_among_them() -> None:
    kinds = {one for name in nodes.__all__ if isinstance(one := getattr(nodes, name), type) and issubclass(one, Node)}
    assert {*kinds, Approve, Deny, Value, Graph, Limits, Message, Retry, Usage} <= {*MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_a_field_that_does_not_exist_is_refused_with_the_one_that_was_meant(model: type[BaseModel]) -> None:
    fields = names_of(model)
    meant = max(fields, key=len)
    with pytest.raises(ValidationError) as caught:
        model(**{f"{meant}x": 1})
    assert f"{model.__name__} has no '{meant}x': did you mean '{meant}'?" in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        model(qqqqqq=1)
    told = str(caught.value)
    assert f"{model.__name__} has no 'qqqqqq': it has " in told
    assert all(name in told for name in fields)


@pytest.mark.parametrize("model", [one for one in MODELS if one is not Subgraph])
def test_a_value_without_a_name_is_refused_with_a_name(model: type[BaseModel]) -> None:
    with pytest.raises(TypeError, match=f"^{model.__name__} takes its fields by name: write {model.__name__}\\(\\w+="):
        model("no")  # type: ignore[call-arg]


def test_the_fields_of_a_kind_come_before_those_of_all_nodes() -> None:
    with pytest.raises(ValidationError, match=r"Complete has no 'into': it has system, prompt, result, .*, retry, "):
        Complete(prompt="x", into="y")  # type: ignore[call-arg]


def test_a_kind_of_a_user_takes_what_it_says() -> None:
    class Own(Confirm, kind="own_spelled"):
        extra: str = ""

    class Made(Confirm, kind="made_spelled"):
        def __init__(self, **options: Any) -> None:
            options.pop("own", None)
            super().__init__(**options)

    Own(extra="x")
    Made(own="x", prompt="y")
    with pytest.raises(ValidationError, match="Own has no 'exta': did you mean 'extra'"):
        Own(exta="x")  # type: ignore[call-arg]


def test_data_of_later_versions_may_have_more() -> None:
    assert Deny.model_validate({"type": "deny", "reason": "no", "later": 1}) == Deny(reason="no")
    assert Usage.model_validate({"calls": 1, "later": 1}) == Usage(calls=1)


@pytest.mark.parametrize("given", [(ValueError,), ValueError, "ValueError", ["ValueError", KeyError]])
def test_errors_to_retry_are_given_by_their_names(given: Any) -> None:
    with pytest.raises(ValidationError, match=r"takes a tuple of names of errors: write on=\('ValueError',"):
        Retry(on=given)


async def _in_a_loop() -> None:
    with pytest.raises(RuntimeError, match=r"already running here, as in a notebook: use `await run\(\.\.\.\)`$"):
        GRAPH.run_sync({})


@pytest.mark.anyio
async def test_run_sync_where_an_event_loop_runs_says_what_to_await() -> None:
    await _in_a_loop()


def test_run_sync_raises_what_the_run_raises_and_nothing_about_event_loops() -> None:
    with pytest.raises(InvalidInput) as caught:
        GRAPH.run_sync({"m": 1})
    assert caught.value.__context__ is None


def test_a_node_of_a_method_says_how_to_make_it() -> None:
    class Steps:
        def plan(self, state: State) -> dict[str, int]:
            return {"n": 1}

    with pytest.raises(GraphError, match=r"wants 'self', .*: make a node of the method of an instance, node\(steps\."):
        node(Steps.plan)  # type: ignore[type-var]
    assert node(Steps().plan).call(State(), None) == {"n": 1}


def test_a_graph_is_saved_and_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"graph 'g' cannot be pickled: save it, graph\.save\(path\)"):
        pickle.dumps(GRAPH)


def test_an_alias_in_an_input_is_answered_with_the_name_of_the_field() -> None:
    with pytest.raises(InvalidInput, match="'userName' is an alias: write the field's name, 'user'"):
        GRAPH.initial({"userName": "ann"})


# -- functions that return coroutines --------------------------------------------------------------------------------


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any) -> Any:
        return function(*args)

    return around


async def think(state: State) -> dict[str, int]:
    return {"n": state.n + 1}


class Later:
    """Something to await that is no coroutine."""

    def __await__(self) -> Iterator[Any]:
        yield from think(State()).__await__()
        return {"n": 1}


FUNCTIONS: list[Callable[[Any], Any]] = [timed(think), lambda state: think(state), lambda state: Later()]


@pytest.mark.anyio
@pytest.mark.parametrize("effect", ["pure", "idempotent", "irreversible"])
@pytest.mark.parametrize("function", FUNCTIONS)
async def test_a_function_that_returns_an_awaitable_is_awaited(
    function: Callable[..., Awaitable[Any]], effect: Any
) -> None:
    made = node(effect=effect)(function)
    graph = Graph(name="g", state=State, nodes={"one": made}, edges="START -> one -> END", output="n")
    run = await graph.run({})
    assert (run.status, run.output) == ("completed", 1)
    assert made.awaits
