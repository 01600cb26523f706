"""What is wrong in a graph file is said at once, each fault with its line; the types of states written as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator import Graph
from orchestrator.errors import GraphError, GraphUnknown, InvalidGraph, InvalidInput
from orchestrator.graph.state import StateSchema
from orchestrator.models import Message, assistant

FILE = """\
name: a
state:
  types:
    Ticket: {title: str, kind: "Literal['billing', 'other']", lines: {type: "list[str]", default: []}}
  fields:
    question: str
    tickets: {type: "list[Ticket]", default: [{title: first, kind: billing}]}
    kind: "Literal['billing', 'other'] | None"
    messages: {type: "list[Message]", reducer: append, default: []}
    answer: {type: str, default: ""}
nodes:
  ask: {kind: complete, prompt: "{question}", result: answer}
  look: {kind: complete, prompt: "{question}", result: answer}
edges: |
  START -> ask -> look
  # the last one
  look -> END
input: question
output: answer
"""


def load(tmp_path: Path, *changes: tuple[str, str], name: str = "a.yaml") -> Graph:
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / name
    path.write_text(text)
    return Graph.load(path)


def test_a_state_has_messages_literals_and_models_without_python(tmp_path: Path) -> None:
    graph = load(tmp_path)
    schema = graph.schema
    values = schema.decode(schema.initial({"question": "q", "kind": "other"}))
    (ticket,) = values["tickets"]  # type: ignore[misc]
    assert (ticket.title, ticket.kind, ticket.lines) == ("first", "billing", [])
    values = schema.apply(values, *schema.encode_update({"messages": assistant("hello")}))
    assert isinstance(values["messages"][0], Message)  # type: ignore[index]
    assert schema.dump(values)["tickets"] == [{"title": "first", "kind": "billing", "lines": []}]
    with pytest.raises(InvalidInput, match="kind"):
        schema.initial({"question": "q", "kind": "neither"})


def test_a_saved_file_is_the_same_graph(tmp_path: Path) -> None:
    graph = load(tmp_path)
    for name in ("again.yaml", "again.json"):
        graph.save(tmp_path / name)
        again = Graph.load(tmp_path / name)
        assert (again.structure, again.content) == (graph.structure, graph.content)


def test_defaults_of_one_state_are_not_those_of_another(tmp_path: Path) -> None:
    schema = load(tmp_path).schema
    one, other = (schema.decode(schema.initial({"question": "q", "kind": None})) for _ in range(2))
    one["tickets"][0].lines.append("x")  # type: ignore[index]
    assert other["tickets"][0].lines == []  # type: ignore[index]


def test_all_parts_that_are_wrong_are_named_with_their_lines(tmp_path: Path) -> None:
    with pytest.raises(GraphError) as raised:
        load(
            tmp_path,
            ("question: str\n", "question: strr\n"),
            ("reducer: append", "reducer: appendd"),
            ("ask: {kind: complete", "ask: {kind: complet"),
            ("look: {kind: complete, prompt", "look: {kind: complete, promt"),
            ("look -> END", "look -> > END"),
        )
    said = str(raised.value).splitlines()
    assert said[0] == f"{tmp_path / 'a.yaml'} has 5 problems:"
    assert [row.partition(": ")[0] for row in said[1:] if row.startswith("  - ")] == [
        "  - line 6", "  - line 9", "  - line 12", "  - line 13", "  - line 17",
    ]  # fmt: skip
    for words in ("did you mean 'str'", "did you mean 'append'", "did you mean 'complete'", "promt", "not an arrow"):
        assert words in str(raised.value)


def test_what_else_is_wrong_is_said_beside_nodes_that_are(tmp_path: Path) -> None:
    with pytest.raises(GraphError) as raised:
        load(
            tmp_path,
            ("ask: {kind: complete", "ask: {kind: complet"),
            ("look -> END", "look -> later"),
            ("output: answer", "output: answr"),
        )
    said = str(raised.value)
    assert "line 12: node 'ask'" in said
    assert "line 17: edge look -> later leads to 'later', which is not a node" in said
    assert "did you mean 'answer'?" in said


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_problems_of_the_checks_have_lines_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILE.replace("look -> END", "look -> nowhere"))
    if name.endswith("json"):
        import yaml

        path.write_text(json.dumps(yaml.safe_load(path.read_text()), indent=1))
    with pytest.raises(InvalidGraph) as raised:
        Graph.load(path)
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "nowhere" in text)
    (problem,) = [problem for problem in raised.value.problems if "nowhere" in problem.message]
    if name.endswith("yaml"):
        assert problem.message.startswith(f"line {line}: edge look -> nowhere leads to")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"A": {"x": "B"}, "B": {"x": "list[A]"}}, "type 'A' contains itself, through A -> B -> A"),
        ({"A": "str"}, "type 'A' must be a mapping from field to type"),
        ({"1a": {}}, "'types' names a model '1a'"),
        ({"A": {"x": {"type": "str", "reducer": "append"}}}, "field 'A.x' has no 'reducer'"),
        ({"A": {"x": {"type": "int", "default": "y"}}}, "field 'A.x' has a default that is not int"),
        ({"A": {"_x": "int"}}, "field 'A._x'"),
        (["A"], "a mapping from name to fields"),
    ],
)
def test_a_model_that_is_written_wrong_says_where(types: object, message: str) -> None:
    with pytest.raises(GraphError) as raised:
        StateSchema.from_data({"fields": {"x": "str"}, "types": types})
    assert message in str(raised.value)


def test_one_missing_kind_is_missing_code_and_has_its_line(tmp_path: Path) -> None:
    with pytest.raises(GraphUnknown, match=r"line 12: node 'ask': there is no node kind 'complet'; did you mean"):
        load(tmp_path, ("ask: {kind: complete", "ask: {kind: complet"))


def test_the_page_about_files_shows_a_graph_and_its_faults(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "yaml.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    path = tmp_path / "triage.yaml"
    path.write_text(text)
    graph = Graph.load(path)
    graph.save(tmp_path / "again.yaml")
    assert Graph.load(tmp_path / "again.yaml").content == graph.content
    wrong = text.replace("question: str", "question: strr").replace("kind: complete", "kind: complet")
    path.write_text(wrong)
    with pytest.raises(GraphError) as raised:
        Graph.load(path)
    for line in page.partition("```text\n")[2].partition("```")[0].splitlines()[1:3]:
        assert line.removesuffix(" ...") in str(raised.value)
