"""Mistakes that newcomers make in graph files: none is accepted, each is reported with its line and a suggestion."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from orchestrator import Graph
from orchestrator.errors import GraphError
from tests.support.shell import Shell

FILE = """\
name: mail
state:
  fields:
    question: str
    notes: {type: "list[str]", reducer: append, default: []}
    items: {type: "list[str]", default: []}
    score: {type: int, default: 0}
    ok: {type: bool, default: false}
    reply: {type: str, default: ""}
input: question
output: reply
limits: {steps: 20}
nodes:
  draft: {kind: complete, prompt: "{question}", result: reply}
  check: {kind: confirm, prompt: "Send?", show: [reply]}
edges: |
  START -> draft -> check
  check -> END   : approved
  check -> draft : denied
"""
EDGES = FILE[FILE.index("edges:") :]
DRAFT = '{kind: complete, prompt: "{question}", result: reply}'
CHECK = '{kind: confirm, prompt: "Send?", show: [reply]}'
BOOLEANS = "YAML reads yes, no, on and off as true and false"


class Mistake(NamedTuple):
    """A change of the file, the line that is named, and words of the message."""

    old: str
    new: str
    line: int
    words: str


MISTAKES = (
    # The form of YAML
    Mistake("  draft: {", "\tdraft: {", 14, "indent with spaces"),
    Mistake("  check: {kind", "check: {kind", 15, "it is a node, so indent it below 'nodes'"),
    Mistake("  fields:\n    q", "fields:\n    q", 3, "indent it below 'state'"),
    Mistake("show: [reply]}", "show: [reply]", 15, "close the bracket"),
    Mistake('"Send?"', '"Send?', 15, "close the quote"),
    Mistake('"Send?"', "Send: now?", 15, "quote a text with a colon in it"),
    Mistake('"list[str]", reducer', "list[str], reducer", 5, 'quote a type with brackets, as in "list[str]"'),
    Mistake("edges: |", "edges:", 18, "edges are a block of text, 'edges: |'"),
    Mistake("name: mail", "name: a\n---\nname: b", 2, "a file holds one graph"),
    Mistake("name: mail", 'name: !!python/object/apply:os.system ["true"]', 1, "tags are not read"),
    Mistake("name: mail", "name: !env HOME", 1, "tags are not read"),
    Mistake("input: question", "input: *question", 10, "an alias *name refers to an anchor &name before it"),
    Mistake("{steps: 20}", "&a {steps: *a}", 12, "write the value out"),
    Mistake("  check: {kind", "  draft: {kind", 15, "'draft' occurs twice, first on line 14"),
    Mistake("input: question", "input: question\nname: b", 11, "'name' occurs twice, first on line 1"),
    Mistake("    score:", "    reply: str\n    score:", 10, "'reply' occurs twice, first on line 7"),
    Mistake("name: mail", "name: ma\x01il", 1, "remove the character"),
    # Values that YAML reads as others
    Mistake("  check: {kind", "  yes: {kind", 15, "quote or rename it"),
    Mistake("  check: {kind", "  1: {kind", 15, "quote or rename it"),
    Mistake("    ok: {", "    on: {", 8, BOOLEANS),
    Mistake("    ok: {", "    1: {", 8, "begins with a letter"),
    Mistake("    ok: {", "    is-ok: {", 8, "begins with a letter"),
    Mistake("name: mail", "name: 12", 1, "quote it"),
    Mistake("name: mail", "name: no", 1, BOOLEANS),
    Mistake("name: mail", "name:", 1, "write a text"),
    Mistake("name: mail", "name: mail\nversion: 1.0", 2, "quote it"),
    Mistake('reply: {type: str, default: ""}', "reply: {type: str, default: no}", 9, BOOLEANS),
    Mistake('reply: {type: str, default: ""}', "reply: {type: str, default: 2024-01-01}", 9, "quote it"),
    Mistake("{type: int, default: 0}", "{type: int, default: many}", 7, "default that is not int"),
    Mistake(DRAFT, '{kind: ask, prompt: "Sure?", choices: [yes, no]}', 14, BOOLEANS),
    Mistake("{steps: 20}", "{steps: yes}", 12, BOOLEANS),
    Mistake("{steps: 20}", "{steps: 010}", 12, "YAML reads 010 as a number of another base"),
    Mistake("{steps: 20}", "{seconds: 1:30}", 12, "YAML reads 1:30 as a number of another base"),
    Mistake("result: reply}", "result: reply, timeout: yes}", 14, BOOLEANS),
    Mistake("result: reply}", "no: reply}", 14, BOOLEANS),
    Mistake("result: reply}", "&result: reply}", 14, "is not a string"),
    Mistake("result: reply}", "result: reply, retry: {attempts: yes}}", 14, BOOLEANS),
    # The parts of a graph
    Mistake("output: reply", "outptu: reply", 11, "did you mean 'output'?"),
    Mistake("nodes:\n", "node:\n", 13, "did you mean 'nodes'?"),
    Mistake("input: question", "input: qestion", 10, "did you mean 'question'?"),
    Mistake("output: reply", "output: replay", 11, "did you mean 'reply'?"),
    Mistake("{steps: 20}", "20", 12, "write a mapping"),
    Mistake("{steps: 20}", "{step: 20}", 12, "did you mean 'steps'?"),
    Mistake("{steps: 20}", "{steps: many}", 12, "valid integer"),
    Mistake("{steps: 20}", "{visits: {darft: 3}}", 12, "did you mean 'draft'?"),
    # The state
    Mistake("  fields:\n", "  feilds:\n", 2, "did you mean 'fields'"),
    Mistake("  fields:\n", "  type: {}\n  fields:\n", 2, "did you mean 'types'?"),
    Mistake(FILE[FILE.index("state:") : FILE.index("input:")], "state: Mail\n", 2, "not have the form 'module:Class'"),
    Mistake("reducer: append", "reducer: appned", 5, "did you mean 'append'?"),
    Mistake("reducer: append", "reducer: yes", 5, "write one of append"),
    Mistake('{type: str, default: ""}', '{type: str, reducer: append, default: ""}', 2, "which needs a list"),
    Mistake("question: str", "question: string", 4, "did you mean 'str'?"),
    Mistake("question: str", "question: Array", 4, "did you mean 'list'?"),
    Mistake("question: str", "question: Optional[str]", 4, "did you mean 'T | None'?"),
    Mistake("question: str", "question:", 4, "needs a type"),
    Mistake("{type: int, default: 0}", "{type: int, defualt: 0}", 7, "did you mean 'default'?"),
    # Nodes
    Mistake("kind: complete", "kind: Complete", 14, "did you mean 'complete'?"),
    Mistake("{kind: complete", "{type: complete", 14, "needs a 'kind', such as kind: complete"),
    Mistake(CHECK, "", 15, "such as {kind: complete}"),
    Mistake(CHECK, "confirm", 15, "write a kind as {kind: confirm}"),
    Mistake(CHECK, "[confirm]", 15, "such as {kind: complete}"),
    Mistake("result: reply", "results: reply", 14, "did you mean 'result'?"),
    Mistake("result: reply", "temperature: 0.5", 14, "has no 'temperature': it has"),
    Mistake("result: reply", "retry: {times: 3}", 14, "retry has no 'times': it has attempts"),
    Mistake("result: reply", "outcomes: [done, a]", 14, "remove 'outcomes'"),
    Mistake("result: reply", "result: replies", 14, "did you mean 'reply'?"),
    Mistake("result: reply", "result: score", 14, "which is not a str"),
    Mistake("result: reply", "tools: add", 14, "write a list, [add]"),
    Mistake("show: [reply]", "show: reply", 15, "write a list, [reply]"),
    Mistake("show: [reply]", "show: [replay]", 15, "did you mean 'reply'?"),
    Mistake('"{question}"', '"{qestion}"', 14, "did you mean 'question'?"),
    Mistake('"{question}"', "{question}", 14, "quote a text that begins with {"),
    Mistake('"{question}"', "'{\"a\": 1}'", 14, "write '{{' and '}}' for braces"),
    Mistake("show: [reply]", "show: [reply], join: al", 15, "did you mean 'all'?"),
    Mistake("show: [reply]", "show: [reply], join: 0", 15, "how many branches"),
    Mistake("show: [reply]", "show: [reply], rest: run", 15, "join=2"),
    Mistake(DRAFT, "{kind: subgraph, graph: inner.yaml}", 14, "write the graph here"),
    # Edges
    Mistake("-> draft : denied", "-> drfat : denied", 19, "did you mean 'draft'?"),
    Mistake("START -> draft", "start -> draft", 17, "did you mean 'START'?"),
    Mistake("check -> END ", "check -> end ", 18, "did you mean 'END'?"),
    Mistake(": denied", ": deneid", 19, "did you mean 'denied'?"),
    Mistake("  check -> draft : denied\n", "", 15, "add 'check -> NODE : denied'"),
    Mistake("draft -> check", "draft : each itemz\n  draft -> check", 17, "did you mean 'items'?"),
    Mistake("draft -> check", "draft : each score\n  draft -> check", 17, "which is not a list"),
    Mistake("START -> draft -> check", "START => draft => check", 17, "write '->'"),
    Mistake(EDGES, "edges:\n", 16, "write arrow text"),
    Mistake(EDGES, "edges: 3\n", 16, "write arrow text"),
    Mistake(EDGES, "edges:\n  START: draft\n", 17, "write arrow text"),
    Mistake(EDGES, "edges: [null]\n", 16, "write 'source -> target'"),
    Mistake(EDGES, "edges:\n  - {from: START, to: draft}\n", 17, "it has source, target, outcome, each"),
    Mistake(EDGES, "edges:\n  - START -> draft: done\n", 17, "quote the arrow, 'START -> draft : done'"),
)


def changed(mistake: Mistake) -> str:
    """The file with the mistake in it."""
    assert mistake.old in FILE
    return FILE.replace(mistake.old, mistake.new, 1)


def test_the_file_without_mistakes_is_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "mail.yaml"
    path.write_text(FILE)
    assert Graph.load(path).check().errors == ()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.new.strip().replace("\n", " ")[:40] or "none")
def test_a_mistake_is_reported_with_its_line_and_a_suggestion(tmp_path: Path, mistake: Mistake) -> None:
    path = tmp_path / "mail.yaml"
    path.write_text(changed(mistake))
    with pytest.raises(GraphError) as raised:
        Graph.load(path)
    rows = [row for row in str(raised.value).splitlines() if f"line {mistake.line}" in row and mistake.words in row]
    assert rows, raised.value


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "hello\n", "- a\n- b\n"])
def test_what_is_no_graph_at_all_says_how_to_begin(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mail.yaml"
    path.write_text(text)
    with pytest.raises(GraphError, match=r"mail\.yaml: a graph must be a mapping .*: begin with 'name: NAME'"):
        Graph.load(path)


@pytest.mark.parametrize("key", ["state", "nodes", "edges", "name"])
def test_a_part_that_is_missing_is_named(tmp_path: Path, key: str) -> None:
    path = tmp_path / "mail.yaml"
    path.write_text(yaml.safe_dump({name: part for name, part in yaml.safe_load(FILE).items() if name != key}))
    with pytest.raises(GraphError, match=rf"mail\.yaml: a graph written as data needs '{key}'"):
        Graph.load(path)


TALK = """\
name: talk
state:
  fields:
    question: str
    messages: {type: "list[Message]", reducer: append, default: []}
    pending: {type: "list[ToolCall]", default: []}
    answer: {type: str, default: ""}
input: question
nodes:
  think: {kind: respond, question: question}
edges: |
  START -> think
  think -> END
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kind: respond, question: question", "kind: respond", "such as question='question'"),
        ("list[Message]", "list[any]", "make it a list[Message]"),
        ("list[Message]", "list[str]", "make it a list[Message]"),
    ],
)
def test_a_conversation_that_could_not_begin_or_go_on_is_reported(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "talk.yaml"
    path.write_text(TALK)
    assert Graph.load(path).check().errors == ()
    path.write_text(TALK.replace(old, new))
    with pytest.raises(GraphError) as raised:
        Graph.load(path)
    assert "line 10: think " in str(raised.value)
    assert words in str(raised.value)


def test_check_reports_mistakes_beside_code_that_is_not_trusted(tmp_path: Path) -> None:
    shell = Shell(tmp_path, inside=True)
    text = (
        FILE.replace(DRAFT, "shop:draft")
        .replace("show: [reply]", "shwo: [reply]")
        .replace("-> draft : d", "-> drft : d")
    )
    (tmp_path / "mail.yaml").write_text(text)
    done = shell("check", "mail.yaml")
    assert done.code == 1
    assert "line 15: node 'check': node of kind 'confirm' has no 'shwo': did you mean 'show'?" in done.err


MANY = """\
name: many
state: {fields: {q: str, n: {type: int, default: 0, reducer: append}}}
input: q
nodes:
  a: {kind: confirm, prompt: "Send {foo}?", show: [q, nope]}
  b: {kind: route, cases: {x: "zz == 1"}}
edges: |
  START -> a -> b
  b -> END : x
limits: {steps: -1, foo: 3, seconds: abc}
"""


def test_faults_of_the_state_the_nodes_the_guards_and_the_limits_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text(MANY)
    with pytest.raises(GraphError) as error:
        Graph.load(path)
    said = str(error.value)
    for words in (
        "line 2: field 'n' of state State has the reducer append",
        "line 5: node 'a' shows 'nope', and the state has no such field",
        "nothing fills {foo}; placeholders here: {q}",
        "line 6: port 'cases[zz]' of b is 'zz'",
        "line 10: graph 'many': limits.steps: input should be greater than 0",
        "line 10: graph 'many': limits.seconds",
        "line 10: graph 'many': limits has no 'foo'",
    ):
        assert words in said, said


def test_names_that_yaml_or_pydantic_read_otherwise_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    path.write_text(
        FILE.replace("nodes:\n", "nodes:\n  on: {kind: sleep, seconds: 1}\n  yes: {kind: sleep, seconds: 1}\n")
    )
    with pytest.raises(GraphError, match=rf"line 15: yes \({BOOLEANS}: quote it\) occurs twice, first on line 14"):
        Graph.load(path)
    path.write_text(FILE.replace("    ok:", "    model_dump: {type: str, default: x}\n    ok:"))
    with pytest.raises(GraphError, match="line 8: field name 'model_dump' belongs to pydantic"):
        Graph.load(path)


@pytest.mark.filterwarnings("error")
def test_a_field_with_a_name_of_pydantic_that_fits_causes_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "fits.yaml"
    path.write_text(FILE.replace("    ok:", "    copy: {type: str, default: x}\n    ok:"))
    assert "copy" in Graph.load(path).schema.fields
