"""Graphs as YAML and JSON, for people and for stores."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Graph
from orchestrator.errors import GraphError, GraphUnknown, NotSerialisable, UntrustedCode
from orchestrator.graph import Limits, Node, StateSchema, node
from tests.graph import sample
from tests.graph.sample import Ask, Essay, grade, make, write

YAML = """\
name: essay
state: tests.graph.sample:Essay
input: topic
output: drafts
limits:
  steps: 20
  seconds: 60.0
nodes:
  write: tests.graph.sample:write
  grade: tests.graph.sample:grade
  publish:
    kind: ask_sample
    class: tests.graph.sample:Ask
    prompt: |-
      Publish?
      Really?
    reason: feedback
edges: |
  START -> write -> grade
  grade -> write : retry
  grade -> publish : good
  publish -> END : approved
  publish -> write : denied
"""


def test_a_graph_in_yaml_reads_like_a_graph() -> None:
    assert make().to_yaml() == YAML


@pytest.mark.parametrize("name", ["essay.yaml", "essay.yml", "essay.json"])
def test_what_is_saved_loads_as_the_same_graph(tmp_path: Path, name: str) -> None:
    graph = make(
        nodes={
            "write": write.with_(timeout=3, reads={"topic", "feedback"}),
            "grade": grade.with_(retry=None),
            "publish": Ask(prompt="a: b # c", join="each"),
        },
        description="Zwölf",
    )
    graph.save(tmp_path / name)
    loaded = Graph.load(tmp_path / name)
    assert loaded == graph
    assert (loaded.structure, loaded.content) == (graph.structure, graph.content)


def test_a_state_can_be_in_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(
        """
name: chat
state:
  name: Chat
  fields:
    topic: str
    drafts: {type: "list[str]", reducer: append, default: []}
    feedback: {type: str, default: ""}
nodes:
  publish: {kind: ask_sample, class: "tests.graph.sample:Ask", prompt: "Publish?"}
edges:
  - START -> publish
  - "publish -> END : approved"
  - "publish -> publish : denied"
"""
    )
    graph = Graph.load(path)
    assert graph.initial({"topic": "x"}) == {"topic": "x", "drafts": [], "feedback": ""}
    graph.save(tmp_path / "again.json")
    assert Graph.load(tmp_path / "again.json").content == graph.content


def test_stored_data_makes_the_graph_again_without_any_code() -> None:
    data = json.loads(json.dumps(make().data()))
    before = set(sys.modules)
    graph = Graph.from_data(data)
    assert not {m for m in set(sys.modules) - before if not m.startswith("orchestrator.")}
    assert [n.kind for n in graph.nodes.values()] == ["unresolved"] * 3
    assert graph.schema.cls is None
    assert (graph.structure, graph.content) == (make().structure, make().content)
    assert graph.data() == make().data()
    assert graph.edges == make().edges


def test_stored_data_of_code_that_is_gone_still_loads() -> None:
    data = json.loads(json.dumps(make().data()).replace("tests.graph.sample", "no.such.module"))
    assert Graph.from_data(data).nodes["grade"].outcomes == ("good", "retry")
    with pytest.raises(
        GraphUnknown, match=r"(?s)4 parts are wrong:.*node 'write': 'no.such.module:write': there is no module 'no'"
    ):
        Graph.from_data(data, resolve=True)


def test_pydantic_dumps_a_graph_as_its_data() -> None:
    assert make().model_dump() == make().data()
    assert Graph.model_validate_json(make().model_dump_json()).content == make().content


class Inner(Node, kind="inner_sample"):
    """A kind with a graph inside."""

    graph: Graph

    @property
    def subgraph(self) -> Graph:
        return self.graph

    async def run(self, state: object, ctx: object) -> None: ...


def nested() -> Graph:
    inner = make(state=StateSchema.from_data({"name": "In", "fields": {"topic": {"type": "str", "default": ""}}}),
                 nodes={"write": write}, edges="START -> write -> END", output=None)  # fmt: skip
    return Graph(name="outer", state=Essay, nodes={"sub": Inner(graph=inner)}, edges="START -> sub -> END")


def test_a_graph_in_a_graph_is_data_inside_its_node(tmp_path: Path) -> None:
    outer = nested()
    data: Any = outer.data()
    assert data["nodes"]["sub"]["graph"]["name"] == "essay"
    outer.save(tmp_path / "outer.yaml")
    loaded = Graph.load(tmp_path / "outer.yaml")
    assert loaded.content == outer.content
    stored = Graph.from_data(outer.data())
    assert (stored.structure, stored.content) == (outer.structure, outer.content)
    assert loaded.nodes["sub"].subgraph == outer.nodes["sub"].subgraph


def test_the_shape_inside_is_part_of_the_shape() -> None:
    outer = nested()
    inner = outer.nodes["sub"].subgraph
    assert inner is not None
    other = inner.replace(write=write.with_(join="each"))
    assert outer.replace(sub=Inner(graph=other)).structure != outer.structure


def test_a_closure_runs_and_is_not_saved(tmp_path: Path) -> None:
    def inner(state: Essay) -> None: ...

    for fn, name in ((inner, "inner"), (lambda state: None, "<lambda>")):
        graph = make(nodes={"write": node(fn), "grade": grade, "publish": Ask(prompt="")})
        assert Graph.from_data(graph.data()).content == graph.content
        with pytest.raises(NotSerialisable) as raised:
            graph.save(tmp_path / "x.yaml")
        assert str(raised.value) == (
            f"node 'write' is a function that a file cannot refer to ({name}, a closure, a lambda or typed in): "
            "move it to the top of a module"
        )


def test_a_local_state_and_a_local_kind_are_not_saved(tmp_path: Path) -> None:
    class Local(BaseModel):
        topic: str = ""
        drafts: list[str] = []

    class Mine(Node):
        pass

    with pytest.raises(NotSerialisable, match="state Local of graph 'essay' is a class that a file cannot refer to"):
        make(state=Local, nodes={"write": write}, edges="START -> write -> END").save(tmp_path / "x.yaml")
    with pytest.raises(NotSerialisable, match=r"node 'a' is of a kind that a file cannot refer to \(.*Mine\)"):
        make(nodes={"a": Mine()}, edges="START -> a -> END").save(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            YAML.replace("input:", "inptu:"),
            GraphError,
            "line 3: a graph written as data has no 'inptu': did you mean 'input'?",
        ),
        (YAML.replace("edges:", "description:"), GraphError, "a graph written as data needs 'edges'"),
        (YAML.replace("  grade:", "  write:"), GraphError, "'write' occurs twice, first on line"),
        (YAML.replace("  grade:", "  yes:"), GraphError, "node name True is not a string"),
        (YAML.replace("sample:grade", "sample:grad"), GraphUnknown, "node 'grade': 'tests.graph.sample:grad': module"),
        (YAML.replace("sample:Essay", "sample:grade"), UntrustedCode, "but a graph file names a pydantic model"),
        ("- a\n- b", GraphError, "a graph must be a mapping with name,"),
        ("name: [", GraphError, "x.yaml: line 1, column 8: expected the node content"),
        ("!!python/object/apply:os.system ['true']", GraphError, "could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_graph_says_why(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(error) as raised:
        Graph.load(path)
    assert message in str(raised.value)


def test_a_graph_is_saved_as_yaml_or_json_only(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"x.toml: save a graph as .yaml, .yml or .json"):
        make().save(tmp_path / "x.toml")


@pytest.mark.full
def test_a_function_of_a_script_is_named_by_the_script(tmp_path: Path) -> None:
    import subprocess

    script = tmp_path / "my_script.py"
    script.write_text(
        "from pydantic import BaseModel\nfrom orchestrator import Graph, node\n"
        "class S(BaseModel):\n    x: int = 0\n"
        "@node\ndef f(state: S): ...\n"
        "g = Graph(name='g', state=S, nodes={'f': f}, edges='START -> f -> END')\n"
        "if __name__ == '__main__':\n    g.save('g.yaml'); print(Graph.load('g.yaml') == g, g.content)\n"
    )
    root = str(Path(sample.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    same, content = run.stdout.split()
    assert same == "True"
    assert "f: my_script:f" in (tmp_path / "g.yaml").read_text()
    code = "import my_script; print(my_script.g.content)"
    again = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True, check=True
    )
    assert again.stdout.strip() == content


def test_limits_of_a_file_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(YAML.replace("steps: 20", "steps: 0"))
    with pytest.raises(GraphError, match=r"graph 'essay': limits.steps: input should be greater than 0"):
        Graph.load(path)
    assert Limits(steps=None).steps is None


# -- files that are too much -------------------------------------------------------------------------------------


def bomb(levels: int, wide: int = 9) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * wide)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (
            "g.yaml",
            bomb(9),
            r"line \d: the file has more than 100,000 values up to here, counting aliases",
        ),
        ("g.yaml", f"a: &a [{'x, ' * 5_000}]\nb:\n" + "- *a\n" * 50, "line 21: the file has more than"),
        ("g.yaml", "a: &a [*a]", "line 1: the alias refers to a value that contains it"),
        ("g.yaml", "a:\n  " + "- " * 20_000, "line 2 is nested more than 160 levels deep"),
        ("g.yaml", "a: " + "[" * 20_000, "line 1 is nested more than 160 levels deep"),
        ("g.yaml", "? [a]\n: b", "line 1: a key is a list or a mapping"),
        ("g.yaml", "a: " + "1" * 5_000, "line 1: a number of more than 400 characters"),
        ("g.yaml", "a: " + ":".join(["1"] * 5_000), "line 1: a number of more than 400 characters"),
        ("g.yaml", "# " + "x" * 1_000_000, "more than 1,000,000 bytes"),
        ("g.json", "[\n" * 200_000, "line 161 is nested more than 160 levels deep"),
        ("g.json", '{"a": ' * 100_000, "line 1 is nested more than 160 levels deep"),
        ("g.json", '{"a": 1,\n}', "line 2"),
        ("g.json", '"' + "[" * 900_000, "Unterminated string"),
        ("g.json", "1" * 5_000, "digits"),
        ("g.json", " " * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
def test_a_file_that_stands_for_too_much_is_refused_with_its_name(
    name: str, text: str, fault: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(GraphError, match=fault) as raised:
        Graph.load(path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["g.yaml", "g.json"])
def test_a_file_that_is_no_utf_8_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"name: a\nversion: \xff\n")
    with pytest.raises(GraphError, match="line 2 is not UTF-8"):
        Graph.load(path)


def test_brackets_in_texts_of_json_are_no_levels(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"name": "[" * 500 + '"' + "{" * 500}))
    with pytest.raises(GraphError, match="needs 'state'"):
        Graph.load(path)


def test_anchors_and_merges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "essay.yaml"
    text = "state: &s tests.graph.sample:Essay"
    path.write_text(YAML.replace("state: tests.graph.sample:Essay", text).replace("\n", "\r\n"), newline="")
    assert Graph.load(path).name == "essay"
