"""Which code a graph file may name, and that nothing else is imported or called."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Graph
from orchestrator.errors import GraphUnknown, InvalidGraph, UntrustedCode
from orchestrator.graph.refs import Trust, code_refs
from orchestrator.graph.text.outline import outline

SHOP = """
import os, subprocess
from subprocess import getoutput
from pydantic import BaseModel
from orchestrator import Graph, node, tool
from orchestrator.graph.reducers import Reducer
from orchestrator.nodes import Ask
from orchestrator.tools.builtin.terminal import terminal
from pathlib import Path
Path(__file__).with_name("imported").touch()

class Order(BaseModel):
    n: int = 0
    words: str = ""

class Mine(Ask, kind="mine_of_the_shop"): ...

@tool(risk="write")
def pay(n: int) -> int:
    return n

@node
def count(state: Order) -> None: ...

def plain(state: Order) -> None: ...
def double(n: int) -> int:
    return 2 * n
def longest(old: str, new: str) -> str:
    return max(old, new, key=len)

largest = Reducer("largest", max)
inner = Graph(name="inner", state=Order, nodes={"count": count}, edges="START -> count -> END")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and says so by a file."""
    (tmp_path / "shop_of_a_stranger.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("shop_of_a_stranger", None)


INLINE = {"name": "S", "fields": {"n": {"type": "int", "default": 0}, "words": {"type": "str", "default": ""}}}


def data_with(place: str, ref: str) -> dict[str, Any]:
    """A graph that names code in one place."""
    ref = ref.replace("shop:", "shop_of_a_stranger:").replace("shop.", "shop_of_a_stranger.")
    state: Any = INLINE
    nodes: dict[str, Any] = {"a": {"kind": "ask", "prompt": "?", "answer": "words"}}
    if place == "state":
        state = ref
    elif place == "reducer":
        state = {**INLINE, "fields": {**INLINE["fields"], "words": {"type": "str", "default": "", "reducer": ref}}}
    else:
        nodes["b"] = {
            "node": ref,
            "function": {"kind": "function", "ref": ref},
            "kind": {"kind": "mine_of_the_shop", "class": ref, "prompt": "?", "answer": "words"},
            "tool": {"kind": "advance", "tools": [ref]},
            "graph": {"kind": "subgraph", "graph": ref},
            "call": {"kind": "call", "ref": ref, "args": {"n": "n"}, "result": "n"},
        }[place]
    if place == "tool":
        nodes["b"] = {"kind": "ask", "prompt": "?", "answer": "words", "tools": [ref]}
    return {"name": "g", "state": state, "nodes": nodes, "edges": f"START -> {' -> '.join(nodes)} -> END"}


def saved(place: Path, data: object) -> Path:
    (place / "g.json").write_text(json.dumps(data))
    return place / "g.json"


DECLARED = [
    ("state", "shop:Order"), ("node", "shop:count"), ("function", "shop:count"), ("kind", "shop:Mine"),
    ("tool", "shop:pay"), ("reducer", "shop:largest"), ("graph", "shop:inner"),
]  # fmt: skip
PLAIN = [("node", "shop:plain"), ("tool", "shop:double"), ("reducer", "shop:longest"), ("call", "shop:double")]
NEVER = [
    ("tool", "subprocess:getoutput"), ("reducer", "builtins:eval"), ("reducer", "builtins:exec"),
    ("node", "os:system"), ("node", "code:interact"), ("state", "shop:double"), ("kind", "shop:Order"),
    ("tool", "shop:getoutput"), ("tool", "shop:subprocess.getoutput"), ("reducer", "shop:os.path.join"),
    ("call", "shop:getoutput"), ("call", "shop:os.system"), ("graph", "shop:Order"), ("tool", "shop:Order"),
    ("reducer", "shop:pay.__class__"), ("tool", "shop:subprocess"), ("call", "shop:double.__class__"),
    ("node", "shop:Order.model_validate"),
]  # fmt: skip


STANDARD = ["subprocess", "os", "code"]
"""Modules of the standard library. Where they are named, too, a call may name any function of them."""
REFUSED = [
    (place, ref, trust)
    for place, ref in NEVER
    for trust in (None, ["shop_of_a_stranger"], ["shop_of_a_stranger", *STANDARD])
    if not (place == "call" and trust is not None and trust[1:])
]


@pytest.mark.parametrize(("place", "ref"), [*DECLARED, *PLAIN])
def test_code_is_imported_only_from_a_module_that_was_named(shop: Path, place: str, ref: str) -> None:
    file = saved(shop, data_with(place, ref))
    for trust in (None, False, [], "another", ["shop_of"]):
        with pytest.raises(UntrustedCode) as raised:
            Graph.load(file, trust=trust)
        assert raised.value.modules == ("shop_of_a_stranger",)
        assert "trust=['shop_of_a_stranger']" in str(raised.value)
    assert not (shop / "imported").exists()
    for named in ("shop_of_a_stranger", ["shop_of_a_stranger"], True):
        assert set(Graph.load(file, trust=named).nodes) >= {"a"}


@pytest.mark.parametrize(("place", "ref"), [*DECLARED, *PLAIN])
def test_of_a_module_that_is_imported_only_what_it_declares_is_followed(shop: Path, place: str, ref: str) -> None:
    file = saved(shop, data_with(place, ref))
    __import__("shop_of_a_stranger")
    if (place, ref) in DECLARED:
        assert Graph.load(file).nodes
    else:
        with pytest.raises(UntrustedCode, match="trust="):
            Graph.load(file)


@pytest.mark.parametrize(("place", "ref", "trust"), REFUSED)
def test_what_is_of_another_kind_is_refused_whatever_is_trusted(
    shop: Path, place: str, ref: str, trust: list[str] | None
) -> None:
    __import__("shop_of_a_stranger")
    with pytest.raises(UntrustedCode):
        Graph.load(saved(shop, data_with(place, ref)), trust=trust)


def test_a_tool_of_this_library_that_has_a_risk_needs_trust(tmp_path: Path, shop: Path) -> None:
    """A file could have it called where nothing asks."""
    module = __import__("shop_of_a_stranger")
    assert module.terminal.risk == "dangerous"
    for ref in ("orchestrator.tools.builtin.terminal:terminal", "shop:terminal"):
        file = saved(tmp_path, data_with("tool", ref))
        with pytest.raises(UntrustedCode):
            Graph.load(file)
    file = saved(tmp_path, data_with("tool", "orchestrator.tools.builtin.arithmetic:add"))
    assert Graph.load(file).nodes["b"].tools == ("add",)


def test_stored_data_is_never_followed(shop: Path) -> None:
    """Not even a call, whose kind is the library's own."""
    for place, ref in (*DECLARED, *PLAIN):
        if place != "state":
            graph = Graph.from_data(data_with(place, ref))
            assert {node.kind for node in graph.nodes.values()} <= {"ask", "unresolved"}
    assert not (shop / "imported").exists()


@pytest.mark.parametrize(("place", "ref"), [*DECLARED, *PLAIN])
def test_an_outline_draws_and_checks_without_the_code(shop: Path, place: str, ref: str) -> None:
    data = data_with(place, ref)
    found = outline(data)
    assert [line.rpartition(": ")[2] for line in found.skipped] == [one.ref for one in code_refs(data)]
    assert "<svg" in found.graph.to_svg()
    assert found.graph.check().errors == ()
    assert not (shop / "imported").exists()


def test_an_outline_takes_from_the_edges_what_only_code_would_say() -> None:
    data = {
        "name": "g",
        "state": "nowhere:State",
        "input": "topic",
        "nodes": {
            "a": "nowhere:a",
            "b": "nowhere:b",
            "c": "nowhere:c",
            "d": {"kind": "ask", "prompt": "?"},
            "e": "nowhere:e",
        },
        "edges": "",
    }
    data["edges"] = "START -> a\na -> b, c\nb, c -> d -> e\ne -> END : good\ne -> a : again\nd -> END : error"
    with pytest.raises(InvalidGraph, match="meet at d"):  # an Ask says in the file how it joins
        outline({**data, "input": None})
    data["nodes"]["d"] = "nowhere:d"  # type: ignore[index]
    graph = outline(data).graph
    assert graph.nodes["e"].outcomes == ("good", "again")
    assert (graph.nodes["d"].outcomes, graph.nodes["d"].join) == (("done",), "all")
    assert set(graph.schema.fields) == {"topic"}


def test_an_outline_finds_faults_that_need_no_code() -> None:
    data = data_with("node", "nowhere:f")
    with pytest.raises(Exception, match="'c'"):
        outline({**data, "edges": "START -> a -> b -> c -> END"})
    with pytest.raises(Exception, match="Python's standard library"):
        outline(data_with("tool", "subprocess:getoutput"))


def test_a_module_that_is_named_and_not_there_is_said() -> None:
    with pytest.raises(GraphUnknown, match="there is no module 'nowhere'"):
        Graph.from_data(data_with("node", "nowhere:f"), resolve=Trust.of(["nowhere"]))


def test_a_name_that_begins_like_a_trusted_one_is_another_module() -> None:
    trust = Trust.of(["shop"])
    assert [trust.names(name) for name in ("shop", "shop.a.b", "shopping", "a.shop")] == [True, True, False, False]
