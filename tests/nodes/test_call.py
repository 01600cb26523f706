"""`Call`: a function that knows nothing of graphs is named, called, and its result written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Graph, append, node
from orchestrator.errors import GraphUnknown, InvalidGraph, UntrustedCode
from orchestrator.nodes import ITEM, Call
from tests.support.one_node import error_of, executing, of_one, run

pytestmark = pytest.mark.anyio

HERE = "tests.nodes.functions"


class Values(BaseModel):
    n: int = 4
    word: str = "w"
    items: list[int] = []
    found: Annotated[list[int], append] = []


@pytest.mark.parametrize(
    ("ref", "args", "result", "values"),
    [
        ("double", {"n": "n"}, "n", {"n": 8}),
        ("later", {"n": "n", "word": "word"}, "word", {"word": "w4"}),
        ("later", {"n": "n"}, "word", {"word": "4"}),
        ("hidden", {"n": "n"}, "word", {"word": "hidden 4"}),
        ("update", {"n": "n"}, None, {"n": 5, "word": "updated"}),
        ("nothing", {}, None, {"n": 4, "word": "w"}),
        ("Shop.price", {"n": "n"}, "n", {"n": 40}),
        ("shop", {"n": "n"}, "n", {"n": 104}),
    ],
)
async def test_fields_go_in_and_the_result_is_written(
    ref: str, args: dict[str, str], result: str | None, values: dict[str, object]
) -> None:
    found = await run(Call(ref=f"{HERE}:{ref}", args=args, result=result), Values)
    assert found.status == "completed", found.error
    assert {name: found.values[name] for name in values} == values


async def test_in_a_map_the_item_can_be_an_argument(store: str) -> None:
    graph = Graph(
        name="g",
        state=Values,
        nodes={
            "each": Call(ref=f"{HERE}:double", args={"n": ITEM}, result="found"),
            "all": node(lambda: None, effect="pure", join="all"),
        },
        edges="START -> each : each items\neach -> all -> END",
    )
    async with executing(store=store) as (executor, _):
        found = await executor.start(graph, {"items": [3, 1, 2]})
    assert found.values["found"] == [6, 2, 4]


async def test_a_sync_function_runs_in_a_thread_unless_it_is_pure() -> None:
    beside = await run(Call(ref=f"{HERE}:thread", result="n"), Values)
    assert beside.values["n"] != threading.get_ident()
    inline = await run(Call(ref=f"{HERE}:thread", result="n", effect="pure"), Values)
    assert inline.values["n"] == threading.get_ident()


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        (f"{HERE}:nobody", "module 'tests.nodes.functions' has no 'nobody'"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        (f"{HERE}:number", "which cannot be called; name a function"),
    ],
)
async def test_code_that_is_not_there_leaves_the_run_to_be_resumed(ref: str, words: str) -> None:
    async with executing() as (executor, _):
        with pytest.raises(GraphUnknown, match=words):
            await executor.start(of_one(Call(ref=ref), Values), {}, run_id="r")
        assert (await executor.load("r")).status == "interrupted"


@pytest.mark.parametrize(
    ("ref", "kind", "words"),
    [
        (f"{HERE}:broken", "LookupError", "no 4"),
        (f"{HERE}:double", "InvalidUpdate", "name the field for it, result=, or return a mapping"),
    ],
)
async def test_what_goes_wrong_fails_the_step(ref: str, kind: str, words: str) -> None:
    found = error_of(await run(Call(ref=ref, args={"n": "n"}), Values))
    assert found[0] == kind
    assert words in found[1]


async def test_a_result_of_the_wrong_type_is_refused() -> None:
    kind, message = error_of(await run(Call(ref=f"{HERE}:later", args={"n": "word"}, result="n"), Values))
    assert (kind, "n" in message) == ("InvalidUpdate", True)


@pytest.mark.parametrize("ref", ["double", "a.b", "a:", ":b", "a:b:c", "a-b:c", "a:b()", "a: b"])
def test_what_is_no_reference(ref: str) -> None:
    with pytest.raises(ValidationError, match="is not a reference: write 'module:attribute'"):
        Call(ref=ref)


@pytest.mark.parametrize(
    ("options", "field"), [({"args": {"n": "nobody"}}, "nobody"), ({"result": "nowhere"}, "nowhere")]
)
def test_fields_that_are_not_there_are_found_when_the_graph_is_built(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidGraph, match=field):
        of_one(Call(ref=f"{HERE}:double", **options), Values)


async def test_it_is_data_and_names_its_function_by_reference_only(tmp_path: Path) -> None:
    graph = of_one(Call(ref="not_there_yet:f", args={"n": "n"}, result="n"), Values)
    graph.save(tmp_path / "g.yaml")
    text = (tmp_path / "g.yaml").read_text()
    assert "ref: not_there_yet:f" in text
    with pytest.raises(UntrustedCode, match=r"trust=\['not_there_yet'\]"):
        Graph.load(tmp_path / "g.yaml")
    loaded = Graph.load(tmp_path / "g.yaml", trust=True)  # nothing is imported
    assert (loaded.structure, loaded.content) == (graph.structure, graph.content)
