"""The contract of graphs: the example, what a graph is, its digests, its files, its edits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Approve, Deny, Executor, Graph, Limits, Retry, node
from orchestrator.errors import GraphError, InvalidGraph, InvalidInput, NotSerialisable
from orchestrator.graph import Edge
from orchestrator.nodes import Ask, Confirm, Think
from orchestrator.testing import ScriptedModel
from tests.contract.essay import Essay, essay, grade, write

LONG = "A long draft about graphs, long enough to be good at once."
DATA = {
    "name": "review",
    "state": {
        "name": "Review",
        "fields": {
            "text": "str",
            "reply": {"type": "str", "default": ""},
            "notes": {"type": "list[str]", "reducer": "append", "default": []},
        },
    },
    "input": "text",
    "output": "reply",
    "limits": {"steps": 9},
    "nodes": {
        "look": {"kind": "confirm", "prompt": "Is {text} right?", "show": ["text"]},
        "say": {"kind": "ask", "prompt": "What then?", "choices": ["more", "less"]},
    },
    "edges": "START -> look\nlook -> END : approved\nlook -> say : denied\nsay -> END",
}


def named(**changes: Any) -> Graph:
    fields = {key: getattr(essay, key) for key in Graph.model_fields}
    return Graph(**{**fields, **changes})


# -- the example ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_example_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ScriptedModel(["short", LONG]) as model:
        run = await essay.run("graphs", model=model, store="sqlite:///runs.db")
    assert run.status == "paused"
    assert run.values == {"topic": "graphs", "drafts": ["short", LONG], "score": len(LONG) / 100, "feedback": ""}
    (question,) = run.waiting
    assert (question.kind, question.node, question.prompt) == ("approval", "publish", "Publish?")
    assert question.payload["shown"] == {"drafts": ["short", LONG]}
    assert [request.messages[0].content for request in model.requests] == ["Write about graphs. "] * 2
    assert (tmp_path / "runs.db").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("given", ["graphs", {"topic": "graphs"}])
async def test_the_example_takes_the_value_of_its_input_field_or_a_dict_of_it(given: Any) -> None:
    run = await essay.run(given, model=ScriptedModel([LONG]))
    assert (run.values["topic"], run.values["feedback"]) == ("graphs", "")


@pytest.mark.anyio
async def test_the_example_takes_no_other_field() -> None:
    with pytest.raises(InvalidInput, match="takes one input, 'topic': a mapping is its value, unless 'topic' is its "):
        await essay.run({"topic": "graphs", "feedback": "be brief"}, model=ScriptedModel([LONG]))


def test_the_example_runs_without_an_event_loop() -> None:
    run = essay.run_sync("graphs", model=ScriptedModel([LONG]))
    assert run.status == "paused"


@pytest.mark.anyio
async def test_the_example_is_approved_or_goes_round_with_the_reason() -> None:
    model = ScriptedModel([LONG, LONG + "!"])
    async with Executor(graphs=[essay], model=model) as ex:
        run = await ex.start(essay, "graphs")
        run = await ex.answer(run.run_id, run.waiting[0].id, Deny(reason="Say more."))
        assert model.requests[-1].messages[0].content == "Write about graphs. Say more."
        run = await ex.answer(run.run_id, run.waiting[0].id, Approve())
    assert (run.status, run.output) == ("completed", [LONG, LONG + "!"])


# -- what a graph is ------------------------------------------------------------------------------------------------


def test_a_graph_is_a_frozen_pydantic_model_of_nine_fields_its_pools_and_its_migrations() -> None:
    assert isinstance(essay, BaseModel)
    assert set(Graph.model_fields) == {
        "name", "version", "state", "input", "nodes", "edges", "output", "limits", "description", "pools", "migrations",
    }  # fmt: skip
    for field in Graph.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(essay, field, None)
    with pytest.raises(TypeError):
        essay.nodes["write"] = grade  # type: ignore[index]
    with pytest.raises((ValidationError, TypeError), match="colour"):
        named(colour="red")


def test_all_forms_of_edges_are_the_same_edges_and_are_written_as_text() -> None:
    objects = [
        Edge("START", "write"), ("write", "grade"), Edge("grade", "write", "retry"), ("grade", "publish", "good"),
        "publish -> END : approved", ("publish", "write", "denied", None),
    ]  # fmt: skip
    other = named(edges=objects)
    assert other.edges == essay.edges
    assert all(isinstance(edge, Edge) for edge in other.edges)
    assert other == essay
    assert other.structure == essay.structure
    assert isinstance(essay.model_dump()["edges"], str)
    assert isinstance(json.loads(essay.model_dump_json())["edges"], str)


# -- digests --------------------------------------------------------------------------------------------------------


class Rated(BaseModel):
    topic: str
    drafts: list[str] = []
    score: float = 0
    feedback: str = ""


STRUCTURE = {
    "nodes": {
        "nodes": {**essay.nodes, "more": node(lambda: None)},
        "edges": [*essay.edges[1:], "START -> more -> write"],
    },
    "edges": {"edges": [*essay.edges[:-1], ("publish", "grade", "denied")]},
    "outcomes": {
        "nodes": {**essay.nodes, "publish": Confirm(on_denied="raise")},
        "edges": [e for e in essay.edges if e.outcome != "denied"],
    },
    "joins": {"nodes": {**essay.nodes, "grade": grade.with_(join="each")}},
    "state schema": {"state": Rated},
}
CONTENT = {
    "a prompt": {
        "nodes": {**essay.nodes, "publish": Confirm(prompt="Out with it?", show=("drafts",), reason="feedback")}
    },
    "a parameter": {"nodes": {**essay.nodes, "publish": Confirm(prompt="Publish?", reason="feedback")}},
    "@node(version=)": {"nodes": {**essay.nodes, "grade": grade.with_(version="2")}},
    "a retry": {"nodes": {**essay.nodes, "grade": grade.with_(retry=Retry())}},
    "limits": {"limits": Limits(steps=21)},
    "the description": {"description": "writes"},
}


@pytest.mark.parametrize("what", STRUCTURE)
def test_structure_changes_with(what: str) -> None:
    other = named(**STRUCTURE[what])
    assert other.structure != essay.structure
    assert other.content != essay.content


@pytest.mark.parametrize("what", CONTENT)
def test_content_alone_changes_with(what: str) -> None:
    other = named(**CONTENT[what])
    assert other.structure == essay.structure
    assert other.content != essay.content


@pytest.mark.anyio
async def test_graph_data_is_stored_once_per_digest_and_old_runs_draw_without_code(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    newer = named(description="another one")
    async with Executor(url, model=ScriptedModel(lambda request: LONG)) as ex:
        ids = [(await ex.start(graph, "graphs")).run_id for graph in (essay, essay, essay)]
    async with Executor(url, model=ScriptedModel(lambda request: LONG)) as ex:
        ids.append((await ex.start(newer, "graphs")).run_id)
    import sqlite3

    with sqlite3.connect(tmp_path / "runs.db") as db:
        assert db.execute("select count(*) from graphs").fetchone() == (2,)
    async with Executor(url) as ex:  # no graph, no model
        for run_id in ids:
            run = await ex.load(run_id)
            assert run.to_svg().startswith("<svg") or "<svg" in run.to_svg()
            assert "publish" in run.to_svg()


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["graph.yaml", "graph.yml", "graph.json"])
def test_save_and_load_give_the_same_graph(tmp_path: Path, name: str) -> None:
    for graph in (essay, Graph(**DATA)):
        graph.save(tmp_path / name)
        again = Graph.load(tmp_path / name)
        assert again == graph
        assert (again.structure, again.content) == (graph.structure, graph.content)
        assert Graph.load(str(tmp_path / name)) == graph


def test_a_file_names_functions_and_the_state_class_as_module_attr(tmp_path: Path) -> None:
    essay.save(tmp_path / "essay.json")
    data = json.loads((tmp_path / "essay.json").read_text())
    assert data["nodes"]["write"] == "tests.contract.essay:write"
    assert data["nodes"]["grade"] == "tests.contract.essay:grade"
    assert data["state"] == "tests.contract.essay:Essay"
    assert Graph.load(tmp_path / "essay.json").state is Essay
    assert Graph.load(tmp_path / "essay.json").nodes["write"].fn is write.fn


def test_a_graph_of_shipped_kinds_has_no_module_attr_but_the_state_and_that_can_be_inline(tmp_path: Path) -> None:
    shipped = Graph(
        name="ask",
        state=Essay,
        input="topic",
        nodes={"ask": Ask(prompt="And {topic}?", show=("topic",), answer="feedback")},
        edges="START -> ask -> END",
    )
    shipped.save(tmp_path / "shipped.yaml")
    text = (tmp_path / "shipped.yaml").read_text()
    assert [line for line in text.splitlines() if "tests.contract" in line] == ["state: tests.contract.essay:Essay"]
    assert "And {topic}?" in text
    inline = Graph(**DATA)
    inline.save(tmp_path / "inline.yaml")
    assert "fields:" in (tmp_path / "inline.yaml").read_text()
    assert "tests." not in (tmp_path / "inline.yaml").read_text()
    assert inline.run_sync("it").waiting[0].prompt == "Is it right?"


@pytest.mark.anyio
async def test_a_closure_runs_and_draws_and_only_save_refuses_it_naming_the_node(tmp_path: Path) -> None:
    word = "hello"
    graph = named(nodes={**essay.nodes, "write": node(lambda state: {"drafts": word * 20})})
    run = await graph.run("graphs")
    assert run.values["drafts"] == [word * 20]
    assert "write" in graph.to_svg()
    for name in ("graph.yaml", "graph.json"):
        with pytest.raises(NotSerialisable, match="'write'"):
            graph.save(tmp_path / name)
        assert not (tmp_path / name).exists()


# -- edits ----------------------------------------------------------------------------------------------------------


def test_replace_gives_a_new_graph_with_another_node() -> None:
    other = essay.replace(publish=Confirm(prompt="Sure?", reason="feedback"))
    assert other.nodes["publish"].prompt == "Sure?"
    assert essay.nodes["publish"].prompt == "Publish?"
    assert other.edges == essay.edges
    with pytest.raises(GraphError, match="no node 'publsh'"):
        essay.replace(publsh=Confirm())
    with pytest.raises(InvalidGraph, match="outcome 'done' of publish has no edge"):
        essay.replace(publish=grade.with_(declared=("done", "approved", "denied")))


def test_insert_before_as_printed() -> None:
    @node
    def execute() -> None: ...

    graph = Graph(name="g", state=Essay, nodes={"execute": execute}, edges="START -> execute -> END")
    other = graph.insert_before("execute", "confirm", Confirm())
    assert "confirm" not in graph.nodes
    assert {str(edge) for edge in other.edges} == {
        "START -> confirm", "confirm -> execute : approved", "confirm -> END : denied", "execute -> END",
    }  # fmt: skip
    run = other.run_sync({"topic": "t"})
    assert (run.status, run.waiting[0].node) == ("paused", "confirm")


def test_with_limits_and_with_() -> None:
    assert essay.with_limits(steps=5).limits == Limits(steps=5, seconds=60)
    assert essay.with_limits(Limits(tokens=7)).limits == Limits(tokens=7)
    assert essay.limits == Limits(steps=20, seconds=60)
    changed = write.with_(join="all", retry=Retry(attempts=2))
    assert (changed.join, changed.retry) == ("all", Retry(attempts=2))
    assert (write.join, write.retry) == (None, None)
    assert Think().with_(prompt="{question}", version="2").prompt == "{question}"
    with pytest.raises(ValidationError):
        write.with_(join="two of them")
