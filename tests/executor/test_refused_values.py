"""Runs in which nodes, inputs, maps and tools give a hidden secret: it is refused, and not a byte of it is stored."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import GenericAlias
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, field_serializer

from orchestrator import Context, Executor, Graph, node, tool
from orchestrator.errors import SecretInState

pytestmark = pytest.mark.anyio
TEXT = "hunter2-in-plain-text"


class Login(BaseModel):
    password: SecretStr = SecretStr(TEXT)

    @field_serializer("password", when_used="json")
    def plain(self, value: SecretStr) -> str:
        return value.get_secret_value()


KINDS: list[tuple[Any, Callable[[object], object]]] = [
    (Any, lambda inner: deque([inner])),
    (Sequence, lambda inner: [inner]),
    (Mapping, lambda inner: {"a": inner}),
    (deque, lambda inner: deque([inner])),
    (GenericAlias(dict, (str, Sequence)), lambda inner: {"a": [inner]}),
    (list, lambda inner: [{"a": deque([inner])}]),
]


PATH = "START -> put -> look -> END"


def putting(kind: Any, value: object, given: str | None = "x") -> Graph:
    state = type(
        "Kept",
        (BaseModel,),
        {"__annotations__": {"x": int, "field": kind, "seen": str}, "x": 0, "field": None, "seen": ""},
    )

    @node(effect="pure")
    def put(state: Any) -> dict[str, object]:
        return {"field": value}

    @node(effect="pure")
    def look(state: Any) -> dict[str, object]:
        return {"seen": "looked"}

    return Graph(name="puts", state=state, nodes={"put": put, "look": look}, edges=PATH, input=given, output="seen")


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def run(folder: Path, graph: Graph, given: object) -> tuple[str, str]:
    """How a run ends: its status and error. Nothing of the secret is in the store."""
    async with Executor(f"sqlite:///{folder}/runs.db", graphs=[graph], tools=[echo]) as executor:
        result = await executor.start(graph, given)
    assert TEXT.encode() not in stored(folder)
    assert TEXT not in str(result.error)
    return result.status, str(result.error)


@pytest.mark.parametrize(("kind", "around"), KINDS)
async def test_an_update_with_a_secret_is_refused(
    kind: Any, around: Callable[[object], object], tmp_path: Path
) -> None:
    status, error = await run(tmp_path, putting(kind | None, around(Login())), {"x": 1})
    assert (status, "SecretInState: field 'field': a secret must not" in error) == ("failed", True), error


@pytest.mark.parametrize(("kind", "around"), KINDS)
async def test_an_update_with_a_number_without_an_end_is_refused(
    kind: Any, around: Callable[[object], object], tmp_path: Path
) -> None:
    status, error = await run(tmp_path, putting(kind | None, around(math.nan)), {"x": 1})
    assert (status, "field 'field': nan is not a number that JSON can represent" in error) == ("failed", True), error


@pytest.mark.parametrize(("kind", "around"), KINDS)
async def test_a_secret_in_an_input_is_refused(kind: Any, around: Callable[[object], object], tmp_path: Path) -> None:
    with pytest.raises(SecretInState, match="field 'field'"):
        await run(tmp_path, putting(kind | None, 1, given=None), {"x": 1, "field": around(Login())})
    assert TEXT.encode() not in stored(tmp_path)


class Queue(BaseModel):
    queue: list[Any] = []
    seen: str = ""


@pytest.mark.parametrize("item", [{SecretStr(TEXT): 1}, deque([Login()])])
async def test_a_secret_in_an_item_of_a_map_is_refused(item: object, tmp_path: Path) -> None:
    @node(effect="pure")
    def fill(state: Queue) -> dict[str, object]:
        return {"queue": [1, item]}

    @node(effect="pure")
    def work(state: Queue, ctx: Context) -> dict[str, object]:
        return {}

    @node(effect="pure", join="all")
    def done(state: Queue) -> dict[str, object]:
        return {"seen": "all"}

    edges = "START -> fill\nfill -> work : each queue\nwork -> done -> END"
    graph = Graph(name="maps", state=Queue, nodes={"fill": fill, "work": work, "done": done}, edges=edges)
    status, error = await run(tmp_path, graph, {})
    assert (status, "SecretInState: field 'queue'" in error) == ("failed", True), error


@pytest.mark.parametrize(
    ("given", "returned"), [(deque([Login()]), 1), (1, deque([Login()])), ({SecretStr(TEXT): 1}, 1)]
)
async def test_a_secret_in_an_effect_is_refused(given: object, returned: object, tmp_path: Path) -> None:
    @node
    async def call(state: Queue, ctx: Context) -> dict[str, object]:
        await ctx.effect("ask", lambda given: returned, given, returns=object)
        return {"seen": "called"}

    graph = Graph(name="calls", state=Queue, nodes={"call": call}, edges="START -> call -> END")
    status, error = await run(tmp_path, graph, {})
    assert (status, "SecretInState: " in error) == ("failed", True), error


@tool
def echo(value: Any = None) -> object:
    """Return what is given, or a login."""
    return deque([Login()]) if value is None else value


@pytest.mark.parametrize("value", [deque([Login()]), {"a": [Login()]}, {SecretStr(TEXT): 1}])
async def test_a_secret_in_an_argument_of_a_tool_is_refused(value: object, tmp_path: Path) -> None:
    @node
    async def call(state: Queue, ctx: Context) -> dict[str, object]:
        await ctx.tool("echo", {"value": value})
        return {}

    graph = Graph(name="calls", state=Queue, nodes={"call": call}, edges="START -> call -> END")
    status, error = await run(tmp_path, graph, {})
    assert (status, "SecretInState: tool 'echo': an argument" in error) == ("failed", True), error


async def test_a_secret_in_a_result_of_a_tool_is_refused(tmp_path: Path) -> None:
    @node
    async def call(state: Queue, ctx: Context) -> dict[str, object]:
        return {"seen": str(await ctx.tool("echo", {}))}

    nodes = {"call": call}
    graph = Graph(name="calls", state=Queue, nodes=nodes, edges="START -> call -> END", output="seen")
    async with Executor(f"sqlite:///{tmp_path}/runs.db", graphs=[graph], tools=[echo]) as executor:
        result = await executor.start(graph, {})
    assert "a secret must not enter the state" in str(result.output)
    assert TEXT.encode() not in stored(tmp_path)
