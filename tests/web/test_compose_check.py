"""The page for writing graphs asks what a text is made of, and what is wrong with one, whatever the text is."""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import process_time
from typing import Any

import pytest
import yaml

from orchestrator import Graph, node
from orchestrator.errors import GraphError
from orchestrator.graph.faults import booleans_for_numbers
from orchestrator.graph.given_code import given_code
from orchestrator.graph.reading import node_from_data
from orchestrator.graph.refs import find
from orchestrator.graph.text.source import read_yaml
from orchestrator.nodes import KINDS, Complete
from orchestrator.web.compose import checks
from tests.support.sizes import sized
from tests.web.api import GRAPHS, Api, Note, api, letter, pay

TEXT = """\
name: triage
state:
  fields:
    question: str
    reply: {type: str, default: ''}
input: question
output: reply
nodes:
  sort: {kind: classify, choices: {bill: money, other: else}}

  # answers
  bill:
    kind: complete
    system: You answer questions about bills.

  act:
    kind: subgraph
    inputs: {question: question}
    outputs: {reply: reply}
    graph:
      name: inner
      state: {fields: {question: str, reply: {type: str, default: ''}}}
      nodes:
        write: {kind: complete}
      edges: START -> write -> END
edges: |
  START -> sort
  sort -> bill : bill
  sort -> act : other
  bill, act -> END
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Api]:
    with api() as found:
        yield found


def test_the_kinds_are_listed_with_a_node_that_each_can_be(server: Api) -> None:
    found = server.get("kinds")
    assert [kind["name"] for kind in found["kinds"]] == sorted(KINDS)
    for kind in found["kinds"]:
        node = node_from_data(kind["node"], strict=True)
        assert node.kind == kind["name"]
        assert yaml.safe_load(kind["example"]) == kind["node"]
        assert kind["outcomes"] in (None, list(node.outcomes))
        assert kind["summary"]
        needed = {field["name"] for field in kind["fields"] if field["required"]}
        assert needed <= kind["node"].keys()
    assert {field["name"] for field in found["common"]} >= {"retry", "timeout", "join", "tools"}
    (tool,) = found["tools"]
    assert (tool["name"], tool["risk"], tool["ref"]) == ("pay", "write", "tests.web.api:pay")
    assert list(found["words"]["graph"])[:4] == ["name", "version", "description", "state"]
    assert all(found["words"]["graph"].values())


@pytest.mark.full
def test_every_strategy_is_a_text_that_can_be_checked_whole(server: Api) -> None:
    found = server.get("kinds")["strategies"]
    assert {"react", "tool_user", "rewoo"} <= {one["name"] for one in found}
    for one in found:
        answer = server.post("graphs/check", text=one["yaml"], draw=True, prove=True)
        assert (answer["ok"], answer["graph"], answer["skipped"]) == (True, one["name"], [])
        assert answer["drawing"].startswith("<svg")
        assert {proof["verdict"] for proof in answer["proofs"]} == {"proved"}
        assert one["summary"]


def test_a_check_says_where_the_nodes_are_and_where_they_lead(server: Api) -> None:
    found = server.post("graphs/check", text=TEXT)
    assert (found["ok"], found["input"], found["proofs"], found["drawing"]) == (True, ["question"], [], None)
    assert [(one["name"], one["kind"], one["first"], one["last"]) for one in found["nodes"]] == [
        ("sort", "classify", 9, 9), ("bill", "complete", 12, 14), ("act", "subgraph", 16, 25),
        ("act/write", "complete", 24, 24),
    ]  # fmt: skip
    assert [(one["outcomes"], one["next"]) for one in found["nodes"]] == [
        (["bill", "other"], ["bill", "act"]), (["done"], ["END"]), (["done"], ["END"]), (["done"], ["END"]),
    ]  # fmt: skip
    assert [(one["source"], one["target"], one["outcome"], one["line"]) for one in found["edges"]] == [
        ("START", "sort", None, 27), ("sort", "bill", "bill", 28), ("sort", "act", "other", 29),
        ("bill", "END", None, 30), ("act", "END", None, 30),
    ]  # fmt: skip
    assert found["fields"] == [
        {"name": "question", "type": "str", "required": True, "reducer": ""},
        {"name": "reply", "type": "str", "required": False, "reducer": ""},
    ]
    assert found["form"]["required"] == ["question"]


def test_a_text_with_faults_has_its_nodes_and_fields_all_the_same(server: Api) -> None:
    text = TEXT.replace("sort -> bill : bill", "sort => bill : bill").replace("kind: subgraph", "kind: subgrap")
    found = server.post("graphs/check", text=text)
    assert [(one["line"], one["column"]) for one in found["problems"]] == [(16, 3), (28, 8)]
    assert [(one["name"], one["outcomes"]) for one in found["nodes"]][:2] == [
        ("sort", ["bill", "other"]), ("bill", ["done"]),
    ]  # fmt: skip
    assert [one["name"] for one in found["fields"]] == ["question", "reply"]
    assert found["form"] is None


def test_a_fault_of_yaml_has_its_line_and_column(server: Api) -> None:
    (problem,) = server.post("graphs/check", text="name: a\nnodes: {a: [}")["problems"]
    assert (problem["line"], problem["column"] > 0) == (2, True)


def test_proofs_show_the_path_that_breaks_a_claim(server: Api) -> None:
    text = (
        "name: g\nstate: {fields: {tool: str, args: 'dict[str, any]', result: {type: any, default: null}}}\n"
        "nodes: {go: {kind: execute, tools: [pay]}}\nedges: START -> go -> END\n"
    )
    found = server.post("graphs/check", text=text, prove=True)
    broken = [one for one in found["proofs"] if one["verdict"] == "refuted"]
    assert broken, found
    assert broken[0]["about"] == "confirmed"
    assert [step["node"] for step in broken[0]["witness"]][-1] == "go"


# -- code -------------------------------------------------------------------------------------------------------------


def test_a_text_may_name_the_code_of_the_graphs_and_tools_of_the_server(server: Api) -> None:
    text = server.get("graphs/letter")["yaml"]
    assert "tests.web.api:" in text
    found = server.post("graphs/check", text=text)
    assert (found["ok"], found["skipped"]) == (True, [])
    assert [one["name"] for one in found["fields"]] == list(Note.model_fields)


HIDDEN = types.ModuleType("hidden_code")
LOADED: list[str] = []


def _loaded(name: str) -> Any:
    LOADED.append(name)
    raise AttributeError(name)


@pytest.mark.parametrize(
    "ref",
    [
        "os:system", "subprocess:getoutput", "builtins:eval", "tests.web.hostile:TEXTS", "antigravity:geohash",
        "tests.web.api:Gate", "orchestrator.cli.app:main", "orchestrator.__main__:main",
        "graphs.react:sys", "hidden_code:thing", "orchestrator.tools.builtin.files:at", "no_such_module:x", ":x", "x:",
        "tests.web.api:letter.nodes", "orchestrator.nodes.route:import_module", "../x.py:y", "mcp:touch sprung",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "place",
    [
        "nodes: {a: 'REF'}", "nodes: {a: {kind: function, ref: 'REF'}}", "nodes: {a: {kind: call, ref: 'REF'}}",
        "nodes: {a: {kind: mine, class: 'REF'}}", "nodes: {a: {kind: complete, output: 'REF'}}",
        "nodes: {a: {kind: complete, tools: ['REF']}}", "nodes: {a: {kind: complete, tools: [{graph: 'REF'}]}}",
        "nodes: {a: {kind: subgraph, graph: 'REF'}}",
    ],
)  # fmt: skip
def test_a_reference_to_other_code_is_not_followed(
    server: Api, ref: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    HIDDEN.__getattr__ = _loaded  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "hidden_code", HIDDEN)
    LOADED.clear()
    code = given_code(GRAPHS, [pay])
    text = f"name: g\nstate: {{fields: {{x: str}}}}\n{place.replace('REF', ref)}\nedges: START -> a -> END\n"
    importlib.import_module("orchestrator.nodes.route")  # checks load it by themselves, at the first use
    before = set(sys.modules)
    found = server.post("graphs/check", text=text)
    assert not found["ok"] or found["skipped"], found
    assert ref.partition(":")[0] not in set(sys.modules) - before
    assert LOADED == []
    with pytest.raises(GraphError):
        checks.graph_of(checks.read(text, "yaml"), code)
    assert ref.partition(":")[0] not in set(sys.modules) - before
    assert LOADED == []


def test_the_state_of_another_module_is_not_followed(server: Api) -> None:
    text = "name: g\nstate: tests.web.server:Server\nnodes: {a: {kind: complete}}\nedges: START -> a -> END\n"
    with pytest.raises(GraphError, match=r"is not part of this program's code"):
        checks.graph_of(checks.read(text, "yaml"), given_code(GRAPHS))


def test_a_kind_that_another_module_defines_is_not_found_by_its_name() -> None:
    from orchestrator.graph import Node

    class Stranger(Node, kind="a_stranger"):
        async def run(self, state: object, ctx: object) -> None: ...

    text = "name: g\nstate: {fields: {x: str}}\nnodes: {a: {kind: a_stranger}}\nedges: START -> a -> END\n"
    source = checks.read(text, "yaml")
    with pytest.raises(GraphError, match="no node kind"):
        checks.graph_of(source, given_code(GRAPHS))
    given = Graph(name="given", state=Note, nodes={"a": Stranger()}, edges="START -> a -> END")
    assert checks.graph_of(source, given_code([given])).nodes["a"].kind == "a_stranger"
    Node.kinds.pop("a_stranger")


@node(effect="pure")
def ours(state: Note) -> dict[str, str]:
    return {}


def test_looking_a_reference_up_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    HIDDEN.__getattr__ = _loaded  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "hidden_code", HIDDEN)
    LOADED.clear()
    assert find("hidden_code:thing.of.another") is None
    assert LOADED == []
    assert find(f"{__name__}:ours") is ours


# -- bounds -----------------------------------------------------------------------------------------------------------


def text_of(nodes: str, edges: str = "START -> a -> END") -> str:
    return (
        f"name: g\nstate: {{fields: {{x: str, n: {{type: int, default: 0}}}}}}\nnodes:\n{nodes}\nedges: |\n  {edges}\n"
    )


MANY = ", ".join(f"n{number}" for number in range(3000))
NODES = "\n".join(f"  n{number}: {{kind: complete}}" for number in range(3000))
INNER = "{name: i, state: {fields: {x: str}}, nodes: {a: {kind: complete}}, edges: 'EDGES'}"
TYPES = f"Literal[{', '.join(['1'] * 50_000)}]"
BRACKETS = f"{'(' * 990}n{')' * 990} > 1"
ODD_EDGES = "edges: [1, null, [a], {a: b}, [a, b, c, d, e]]\nb: |"
HOSTILE = {
    "edges of all nodes to all": text_of("  a: {kind: complete}", f"{MANY} -> {MANY}"),
    "a list of such edges": "name: g\nstate: {fields: {x: str}}\nnodes: {a: {kind: complete}}\nedges:\n"
    + "".join(f"  - {', '.join(['a'] * 300)} -> {', '.join(['a'] * 300)}\n" for _ in range(100)),
    "thousands of nodes": text_of(NODES, "START -> n0 -> END"),
    "thousands of faults": text_of("  a: {kind: complete}", "\n  ".join(f"a -> b{number}" for number in range(5000))),
    "thousands of faulty nodes": text_of("\n".join(f"  n{n}: {{kind: complete, b{n}: 1}}" for n in range(900))),
    "one graph by many aliases": "name: g\nstate: {fields: {x: str}}\nnodes:\n"
     f"  a: {{kind: subgraph, graph: &g {INNER.replace('EDGES', '# ' + 'x' * 60_000)}}}\n"
    + "".join(f"  b{number}: {{kind: subgraph, graph: *g}}\n" for number in range(900)) + "edges: START -> a -> END",
    "edges of one graph by many aliases": "name: g\nstate: {fields: {x: str}}\nnodes:\n"
     f"  a: {{kind: subgraph, graph: &g {INNER.replace('EDGES', f'{MANY} -> {MANY}')}}}\n"
    + "".join(f"  b{number}: {{kind: subgraph, graph: *g}}\n" for number in range(500)) + "edges: START -> a -> END",
    "merges of merges": "a: &a {k: 1}\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [*{chr(97 + n)}, *{chr(97 + n)}, *{chr(97 + n)}]}}\n" for n in range(20)
    ),
    "a megabyte of text": text_of(f"  a: {{kind: complete, prompt: '{'x' * 900_000}'}}"),
    "a megabyte of nothing": " " * 900_000,
    "a huge number": text_of(f"  a: {{kind: repeat, times: {'9' * 5000}}}"),
    "a huge number of another base": text_of("  a: {kind: repeat, times: 1:1:1:1:1}"),
    "a type of many levels": text_of("  a: {kind: complete}").replace("x: str", f"x: '{'list[' * 180}str{']' * 180}'"),
    "a very long type": text_of("  a: {kind: complete}").replace("x: str", f"x: '{TYPES}'"),
    "a guard of many brackets": text_of(f"  a: {{kind: route, cases: {{y: '{BRACKETS}'}}, default: z}}"),
    "a guard of many comprehensions": text_of(
        "  a: {kind: route, cases: {y: 'x.all(a, x.all(b, x.all(c, true)))'}, default: z}"
    ),
    "a guard that is too long": text_of(f"  a: {{kind: route, cases: {{y: '{'n + ' * 5000}n > 1'}}, default: z}}"),
    "graphs in graphs": "graph: {nodes: {a: {kind: subgraph, " * 40 + "x: 1" + "}}}" * 40,
    "a name of a hundred thousand letters": text_of(f"  {'a' * 100_000}: {{kind: complete}}"),
    "a template of many braces": text_of(f"  a: {{kind: complete, prompt: '{'{' * 50_000}'}}"),
    "a date that is none": "name: 2020-99-99\nstate: 2020-13-01",
    "surrogates": "name: \ud800\nnodes: {\udfff: 1}",
    "a null sign": "name: \x00",
    "a number as graph": "5", "a list as graph": "[]", "nodes as a list": "name: g\nstate: {}\nnodes: []\nedges: []",
    "odd keys": "name: [1]\nstate: [1]\nnodes: {1: 1, null: null, true: {}}\nedges: {a: b}\ninput: {}\noutput: 1",
    "odd edges": text_of("  a: {kind: complete}").replace("edges: |", ODD_EDGES),
    "odd tools": text_of("  a: {kind: complete, tools: {a: b}}"),
    "odd tools in a list": text_of("  a: {kind: complete, tools: [1, null, {}, {graph: 1}, {handoff: [1]}]}"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("name", [*HOSTILE][:: sized(3, 1)])
def test_a_hostile_text_is_answered_in_bounded_time_and_length(server: Api, name: str, form: str) -> None:
    began = process_time()  # of this process, in which the server is, too
    body = json.dumps({"text": HOSTILE[name], "format": form, "draw": True, "prove": True})
    answer = server.client.post("/api/graphs/check", content=body, headers={"Content-Type": "application/json"})
    assert process_time() - began < 8, "it is bounded by count; this is far above what that costs"
    if name == "surrogates":
        assert answer.status_code in (200, 422)
        return
    found = answer.json()
    assert found["ok"] is False, found
    assert found["problems"]
    assert len(found["problems"]) <= checks.MOST_PROBLEMS
    assert len(str(found)) < 3_000_000
    assert server.get("kinds")["joins"] == ["all", "each"]


@pytest.mark.full
def test_the_edges_of_a_text_are_counted_before_they_are_made() -> None:
    text = HOSTILE["edges of all nodes to all"]
    with pytest.raises(GraphError, match="more than 10,000 edges"):
        checks.read(text, "yaml")
    with pytest.raises(GraphError, match="more than 100,000 edges"):
        Graph.from_data(read_yaml(text))


def test_texts_that_aliases_stand_for_are_counted() -> None:
    with pytest.raises(ValueError, match="the strings of the file have more than"):
        read_yaml(f"a: &a {'x' * 200_000}\nb: [{', '.join(['*a'] * 20)}]")


def test_a_hundred_nodes_are_checked_with_a_bounded_number_of_looks_at_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time on a machine of its own is far below 200 ms; what is counted is what it would grow with."""
    from yaml.composer import Composer

    looked = 0
    whole = Composer.compose_node

    def counted(self: Any, *args: Any) -> Any:
        nonlocal looked
        looked += 1
        return whole(self, *args)

    monkeypatch.setattr(Composer, "compose_node", counted)
    nodes = "\n".join(f"  n{number}:\n    kind: complete\n    prompt: do {{x}}\n    result: x" for number in range(100))
    edges = " -> ".join(["START", *(f"n{number}" for number in range(100)), "END"])
    text = text_of(nodes, edges)
    found = checks.check(text, "yaml", given_code(GRAPHS), [pay])
    assert found.ok, found.problems
    values = looked
    faulty = checks.check(text.replace("result: x", "resul: x"), "yaml", given_code(GRAPHS), [pay])
    assert (len(faulty.problems), looked - values) == (100, values)


def test_what_kinds_take_is_looked_up_once_and_not_for_each_node() -> None:
    """Half of a check was that. It is counted in calls of functions."""
    kind, data, calls = Complete, {"prompt": "x", "retry": {"attempts": 3}, "timeout": 3}, 0
    assert [*booleans_for_numbers(kind, data)] == []

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = [*booleans_for_numbers(kind, data)]
    finally:
        sys.setprofile(None)
    assert (found, calls < 30) == ([], True), calls
    wrong = {**data, "timeout": True, "retry": {"attempts": False}}
    assert [one.partition(":")[0] for one in booleans_for_numbers(kind, wrong)] == ["retry.attempts", "timeout"]


@pytest.mark.full
def test_many_checks_at_once_are_answered_or_put_off(server: Api) -> None:
    text = text_of("\n".join(f"  n{number}: {{kind: complete}}" for number in range(300)))

    def ask(number: int) -> int:
        return server.client.post("/api/graphs/check", json={"text": text}).status_code

    with ThreadPoolExecutor(40) as pool:
        found = list(pool.map(ask, range(60)))
    assert set(found) <= {200, 503}
    assert found.count(200) >= 18
    assert server.start("plain")["status"] == "completed"
    assert letter.name in {one["name"] for one in server.get("graphs")["graphs"]}
