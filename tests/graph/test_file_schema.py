"""The JSON Schema of graph files: it accepts every graph that the loader reads, and refuses what it can express."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from orchestrator import Graph
from orchestrator.cli.graph_refs import graph_from_ref, shipped
from orchestrator.errors import GraphError
from orchestrator.graph.reading import GRAPH_KEYS
from orchestrator.graph.text.outline import outline
from orchestrator.graph.writing import SCHEMA_FILE, to_plain_yaml
from orchestrator.nodes import catalog
from orchestrator.nodes.file_schema import file_schema
from tests.support.shell import Shell

ROOT = Path(__file__).parents[2]
MADE = file_schema()
SCHEMA = Draft202012Validator(MADE)
GRAPH = """
name: triage
state:
  types:
    Ticket: {title: str, lines: {type: "list[str]", default: []}}
  fields:
    question: str
    tickets: {type: "list[Ticket]", reducer: append, default: []}
    answer: {type: str, default: ""}
    messages: {type: "list[Message]", reducer: append, default: []}
input: question
output: [answer]
limits: {steps: 20, seconds: 60.5, visits: {draft: 3}}
pools: {api: 2}
nodes:
  draft: {kind: complete, prompt: "{question}", result: answer, retry: {attempts: 2}, pool: api}
  send: {kind: confirm, prompt: "Send this?", show: [answer]}
edges: |
  START -> draft -> send
  send  -> END   : approved
  send  -> draft : denied
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, inside=True)


def texts() -> Iterator[tuple[str, str]]:
    """Every graph in YAML of the documentation and the tests."""
    for folder in ("docs", "tests"):
        for file in (ROOT / folder).rglob("*.yaml"):
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
    for pattern, kind in (("*.md", r"^```yaml\n(.*?)^```"), ("*.py", r'"""\\?\n?(.*?)"""')):
        for file in [*ROOT.glob(pattern), *(ROOT / "docs").rglob(pattern), *(ROOT / "tests").rglob(pattern)]:
            for number, text in enumerate(re.findall(kind, file.read_text(encoding="utf-8"), re.M | re.S)):
                yield f"{file.relative_to(ROOT)}, {number}", text


def graphs() -> Iterator[tuple[str, Any]]:
    for name, text in texts():
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(data, dict) and "nodes" in data:
            yield name, data


def faults(data: Any) -> list[str]:
    return [f"{one.json_path}: {one.message:.200}" for one in SCHEMA.iter_errors(data)]


def test_the_schema_is_valid_and_plain_json() -> None:
    Draft202012Validator.check_schema(MADE)
    text = json.dumps(MADE)
    assert json.loads(text) == MADE
    assert {ref.split("/")[2] for ref in re.findall(r'"\$ref": "([^"]+)"', text)} <= MADE["$defs"].keys()
    assert {*MADE["$defs"]["graph"]["properties"]} == {*GRAPH_KEYS}


def test_every_graph_that_is_read_fits() -> None:
    read = 0
    for name, data in graphs():
        try:
            outline(data)
        except GraphError:
            continue
        assert faults(data) == [], name
        read += 1
    assert read > 80


@pytest.mark.parametrize("name", shipped())
def test_a_saved_strategy_fits(name: str) -> None:
    graph = graph_from_ref(name)
    for text in (graph.to_yaml(), to_plain_yaml(graph)):
        assert faults(yaml.safe_load(text)) == []


WRONG = [
    ("name: triage", "nam: triage"),
    ("name: triage", "name: two words"),
    ("name: triage", "name: 7"),
    ("name: triage", "name: triage\nversion: 1.0"),
    ("name: triage", "name: triage\nowner: ada"),
    ("name: triage", "name: triage\ndescription: [a, b]"),
    ("input: question", "input: {question: str}"),
    ("output: [answer]", "output: 3"),
    ("steps: 20", "steps: 0"),
    ("steps: 20", "step: 20"),
    ("steps: 20", "steps: yes"),
    ("steps: 20", "steps: many"),
    ("seconds: 60.5", "seconds: -1"),
    ("visits: {draft: 3}", "visits: {draft: 0}"),
    ("pools: {api: 2}", "pools: {api: two}"),
    ("pools: {api: 2}", "pools: [api]"),
    ("kind: complete", "kind: complet"),
    ("kind: complete, ", ""),
    ("kind: complete", "type: complete"),
    ("result: answer", "reslt: answer"),
    ("result: answer", "result: [answer]"),
    ("result: answer", "result: 5"),
    ("attempts: 2", "attempts: 0"),
    ("attempts: 2", "tries: 2"),
    ("retry: {attempts: 2}", "retry: 2"),
    ("show: [answer]", "show: answer"),
    ("show: [answer]", "join: 0"),
    ("show: [answer]", "rest: wait"),
    ("show: [answer]", "effect: safe"),
    ("show: [answer]", "timeout: 0"),
    ("show: [answer]", "timeout: soon"),
    ("show: [answer]", "reads: answer"),
    ("show: [answer]", "on_denied: stop"),
    ("show: [answer]", "tools: calculator"),
    ("show: [answer]", "tools: [{graph: a:b}]"),
    ("show: [answer]", "tools: [{handoff: x, description: d, to: y}]"),
    ("show: [answer]", "choices: {a: b}"),
    ("  send: {", "  END: {"),
    ("  send: {", "  a node: {"),
    ('send: {kind: confirm, prompt: "Send this?", show: [answer]}', "send: confirm"),
    ('send: {kind: confirm, prompt: "Send this?", show: [answer]}', "send: [confirm]"),
    ('send: {kind: confirm, prompt: "Send this?", show: [answer]}', "send: {kind: repeat, times: 0}"),
    ('send: {kind: confirm, prompt: "Send this?", show: [answer]}', "send: {kind: classify}"),
    ('send: {kind: confirm, prompt: "Send this?", show: [answer]}', "send: {kind: function}"),
    ('send: {kind: confirm, prompt: "Send this?", show: [answer]}', "send: {kind: subgraph, graph: {name: a}}"),
    ("reducer: append", "reducer: concat"),
    ("reducer: append", "reduce: append"),
    ('{type: "list[Message]", reducer: append, default: []}', "{reducer: append, default: []}"),
    ('{type: "list[Message]", reducer: append, default: []}', "[list, Message]"),
    ("question: str", "2nd: str"),
    ("question: str", "_question: str"),
    ("  types:", "  type:"),
    ("lines: {type:", "lines: {reducer: append, type:"),
    ("state:\n", "states:\n"),
    ("edges: |\n", "edge: |\n"),
    ("send  -> END ", "send  => END "),
    ('answer: {type: str, default: ""}', "answer: {type: str, default: no}"),
    ('answer: {type: str, default: ""}', "answer: {type: int, default: many}"),
]
"""A text of the graph above, and what stands in its place; the loader refuses each for its form."""


@pytest.mark.parametrize(("old", "new"), WRONG)
def test_a_wrong_form_is_refused_as_by_the_loader(old: str, new: str) -> None:
    assert old in GRAPH
    data = yaml.safe_load(GRAPH.replace(old, new, 1))
    with pytest.raises(GraphError):
        Graph.from_data(data, resolve=True)
    assert faults(data)


def test_pools_that_are_no_mapping_are_refused_also_where_the_code_of_a_graph_is_not_imported() -> None:
    data = yaml.safe_load(GRAPH)
    data["pools"] = ["api"]
    with pytest.raises(GraphError, match="pools: input should be a valid dictionary"):
        outline(data)
    data["nodes"]["draft"]["pool"] = None
    with pytest.raises(GraphError, match="pools: input should be a valid dictionary"):
        outline(data)


def test_the_graph_itself_fits() -> None:
    data = yaml.safe_load(GRAPH)
    outline(data)
    assert faults(data) == []


MODELS = ("Decide", "JsonValue", "Retry", "Rule")
OWN = """
from typing import Annotated

from pydantic import BaseModel, Field

from orchestrator.graph import Node, Port


class Form(BaseModel):
    formal: bool = False


class GreetGuest(Node, outcomes=("met", "stranger")):
    \"\"\"Greet a guest.\"\"\"

    guest: Annotated[str, Port(str)] = "guest"
    times: int = Field(ge=1, description="How often.")
    form: Form = Form()

    async def run(self, state, ctx): ...
"""


def test_the_command_writes_the_schema_with_own_kinds_and_saved_files_name_it(shell: Shell) -> None:
    plain = shell.process("schema").json["$defs"]
    assert plain.keys() == {*catalog.kinds(), "graph", "state", "node", "tool", "function", "Node", *MODELS}
    (shell.place / "guests.py").write_text(OWN, encoding="utf-8")
    done = shell.process("schema", "guests.py", "-o", "graph.schema.json")
    assert done.err.endswith("# yaml-language-server: $schema=graph.schema.json\n")
    schema = json.loads((shell.place / "graph.schema.json").read_text(encoding="utf-8"))
    assert schema["$defs"].keys() - plain.keys() == {"greet_guest", "Form"}
    data = yaml.safe_load(GRAPH)
    own = Draft202012Validator(schema)
    for node, fits in (
        ({"kind": "greet_guest", "times": 2}, True),
        ({"kind": "greet_guest", "times": 2, "class": "guests:GreetGuest"}, True),
        ({"kind": "greet_guest", "times": 0}, False),
        ({"kind": "greet_guest", "times": 2, "form": {"formal": "very"}}, False),
        ({"kind": "greet_guest", "times": 2, "gest": "x"}, False),
        ({"kind": "greet_guest"}, False),
        ({"kind": "greet_gest", "times": 2}, False),
        ({"kind": "another", "class": "guests:Another", "any": 1}, True),
    ):
        assert own.is_valid({**data, "nodes": {"a": node}}) == fits, node
    assert schema["$defs"]["greet_guest"]["properties"]["times"]["description"] == "How often."


def test_a_saved_file_names_the_schema_beside_it_or_above_it(tmp_path: Path) -> None:
    graph = Graph.from_data(yaml.safe_load(GRAPH), resolve=True)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    graph.save(below / "plain.yaml")
    assert (below / "plain.yaml").read_text(encoding="utf-8") == graph.to_yaml()
    (tmp_path / SCHEMA_FILE).write_text("{}", encoding="utf-8")
    for folder, line in ((tmp_path, SCHEMA_FILE), (below, f"../../{SCHEMA_FILE}")):
        graph.save(folder / "graph.yaml")
        text = (folder / "graph.yaml").read_text(encoding="utf-8")
        assert text == f"# yaml-language-server: $schema={line}\n{graph.to_yaml()}"
        assert Graph.load(folder / "graph.yaml").content == graph.content
    graph.save(below / "graph.json")
    assert json.loads((below / "graph.json").read_text(encoding="utf-8"))["name"] == "triage"


def test_a_drawing_in_yaml_names_the_schema_too(shell: Shell) -> None:
    (shell.place / SCHEMA_FILE).write_text("{}", encoding="utf-8")
    shell("render", "react", "-o", "react.yaml")
    text = (shell.place / "react.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\nname: react\n")
    assert shell("check", "react.yaml").code == 0
    assert "yaml-language-server" not in shell("render", "react", "--format", "yaml").out


def test_every_field_of_a_kind_is_explained() -> None:
    defs = MADE["$defs"]
    for kind in (*catalog.kinds(), "graph"):
        mute = [name for name, form in defs[kind]["properties"].items() if not form.keys() & {"description", "$ref"}]
        assert set(mute) <= {"outcomes", "effect"}, kind
    for name in ("Node", "Retry"):
        assert all(form.get("description") for form in defs[name]["properties"].values()), name
