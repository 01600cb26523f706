"""The files of a new project, by their names."""

from __future__ import annotations

from collections.abc import Mapping

TOOL = '''\
"""{title}"""

from orchestrator import tool


@tool(risk="none", effect="pure")
def {function}(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return a + b
'''

AGENT = '''\
"""An agent that calls tools until it can answer."""

from typing import Annotated

from orchestrator import Graph, Limits, Message, ToolCall, append
from orchestrator.nodes import Execute, Respond
from pydantic import BaseModel


class State(BaseModel):
    question: str
    messages: Annotated[list[Message], append] = []
    pending: list[ToolCall] = []
    answer: str = ""


SYSTEM = "You answer questions. Calculate with tools, never in your head."

graph = Graph(
    name="{name}",
    state=State,
    input="question",
    nodes={{
        "think": Respond(system=SYSTEM, question="question", tools=("add",)),
        "act": Execute(
            calls="pending", results="messages", on_failure="observe", tools=("add",)
        ),
    }},
    edges="""
        START -> think
        think -> act : calls
        think -> END : answer
        act -> think
    """,
    output="answer",
    limits=Limits(steps=40),
)
'''

AGENT_YAML = """\
# An agent that calls tools until it can answer.
name: {name}
state:
  fields:
    question: str
    messages: {{type: "list[Message]", reducer: append, default: []}}
    pending: {{type: "list[ToolCall]", default: []}}
    answer: {{type: str, default: ""}}
input: question
output: answer
limits: {{steps: 40}}
nodes:
  think:
    kind: respond
    system: You answer questions. Calculate with tools, never in your head.
    question: question
    tools: [add]
  act: {{kind: execute, calls: pending, results: messages, on_failure: observe, tools: [add]}}
edges: |
  START -> think
  think -> act : calls
  think -> END : answer
  act -> think
"""

GRAPH = '''\
"""A model fills in the arguments of a tool, a person approves risky calls."""

from orchestrator import Graph, ToolResult
from orchestrator.nodes import ChooseArgs, Confirm, Execute
from pydantic import BaseModel, JsonValue


class State(BaseModel):
    question: str
    tool: str = "add"
    args: dict[str, JsonValue] = {{}}
    result: ToolResult | None = None


graph = Graph(
    name="{name}",
    state=State,
    input="question",
    nodes={{
        "fill": ChooseArgs(),
        "confirm": Confirm(tool="tool", args="args", from_risk="write"),
        "call": Execute(),
    }},
    edges="""
        START -> fill -> confirm
        confirm -> call : approved
        confirm -> END : denied
        call -> END
    """,
    output="result",
)
'''

GRAPH_YAML = """\
# A model fills in the arguments of a tool, a person approves risky calls.
name: {name}
state:
  fields:
    question: str
    tool: {{type: str, default: add}}
    args: {{type: "dict[str, any]", default: {{}}}}
    result: {{type: "ToolResult | None", default: null}}
input: question
output: result
nodes:
  fill: {{kind: choose_args}}
  confirm: {{kind: confirm, tool: tool, args: args, from_risk: write}}
  call: {{kind: execute}}
edges: |
  START -> fill -> confirm
  confirm -> call : approved
  confirm -> END : denied
  call -> END
"""

_IMPORT = "from {name} import graph\n"
_LOAD = """
FILE = Path(__file__).with_name("{name}.yaml")
graph: Graph[Any] = Graph.load(FILE)
"""

TEST_AGENT = '''\
"""The agent with a model that says what the test wants."""
{head}

def test_it_calls_the_tool_and_answers() -> None:
    call = ToolCall(id="1", name="add", arguments={{"a": 2, "b": 3}})
    with ScriptedModel([[call], "It is 5."]) as model:
        run = graph.run_sync("What is 2 + 3?", model=model, tools=[add])
    assert run.output == "It is 5."
    assert run.status == "completed"
'''

TEST_GRAPH = '''\
"""The graph with a model that says what the test wants."""
{head}

def test_it_calls_the_tool_with_what_the_model_fills_in() -> None:
    with ScriptedModel(['{{"a": 2, "b": 3}}']) as model:
        run = graph.run_sync("What is 2 + 3?", model=model, tools=[add])
    assert run.output_as(ToolResult).output == 5
    assert run.status == "completed"
'''

TEST_TOOL = '''\
"""The tool alone, and called by a model that says what the test wants."""

import anyio
from orchestrator import ToolCall
from orchestrator.strategies.function_call_agent import graph
from orchestrator.testing import ScriptedModel

from {name} import {name}

NAME = "{name}"
QUESTION = "What is 2 + 3?"
TOOLS = [{name}]


def test_it_adds() -> None:
    assert anyio.run({name}, 2, 3) == 5


def test_a_model_can_call_it() -> None:
    call = ToolCall(id="1", name=NAME, arguments={{"a": 2, "b": 3}})
    with ScriptedModel([[call], "It is 5."]) as model:
        run = graph.run_sync(QUESTION, model=model, tools=TOOLS)
    assert run.output == "It is 5."
'''

ENV = """\
# Copy this file to .env, and never commit that one. The command line reads keys from it, and no other settings. It
# asks on a terminal before it uses them for the first time.
OPENAI_API_KEY=
"""

IGNORED = """\
.env
.orchestrator/
__pycache__/
"""

README = """\
# {name}

{what} Made with `orchestrator new {kind}`.

    pytest                                  # needs no model
    {look}
    {run}

That runs offline, with a model that only does arithmetic. For another one, copy `.env.example` to `.env`, enter your
key, and add `--model openai:NAME`. The first command on a terminal asks whether to use the key; scripts set it in the
environment. {hint}
"""

_WHAT = {
    "agent": "An agent that calls tools until it can answer.",
    "graph": "A graph in which a model fills in the arguments of a tool, and a person approves risky calls.",
    "tool": "A tool for agents.",
}
_DOCSTRING = "The docstring of a tool is what models read"
_HINT = {
    "agent": f"{_DOCSTRING}. Before you add tools that write, put a `confirm` node before `act`.",
    "graph": f"{_DOCSTRING}; its `risk` decides whether `confirm` asks.",
    "tool": f"{_DOCSTRING}; its `risk` decides which calls a person is asked about.",
}


def project_files(kind: str, name: str, *, yaml: bool = False) -> Mapping[str, str]:
    """The files of a project.

    Args:
        kind: `agent`, `graph` or `tool`.
        name: its name.
        yaml: whether its graph is a YAML file.

    Returns:
        The texts, by the names of the files.
    """
    more = {"README.md": _readme(kind, name, yaml), ".env.example": ENV, ".gitignore": IGNORED}
    if kind == "tool":
        tool = TOOL.format(title="A tool for agents.", function=name)
        return {f"{name}.py": tool, f"test_{name}.py": TEST_TOOL.format(name=name), **more}
    graph = {"agent": (AGENT, AGENT_YAML), "graph": (GRAPH, GRAPH_YAML)}[kind][yaml]
    test = {"agent": TEST_AGENT, "graph": TEST_GRAPH}[kind]
    return {
        f"{name}.{'yaml' if yaml else 'py'}": graph.format(name=name),
        f"{name}_tools.py": TOOL.format(title="The tools.", function="add"),
        f"test_{name}.py": test.format(head=_head(kind, name, yaml)),
        **more,
    }


def commands(kind: str, name: str, *, yaml: bool = False) -> tuple[str, str]:
    """The commands that look at a project, and that run it."""
    if kind == "tool":
        return f"orchestrator tools {name}.py", f'orchestrator run react "What is 2 + 3?" --tools {name}.py'
    file = f"{name}.{'yaml' if yaml else 'py'}"
    return f"orchestrator check {file}", f'orchestrator run {file} "What is 2 + 3?" --tools {name}_tools.py'


def _head(kind: str, name: str, yaml: bool) -> str:
    """The imports of a test."""
    used = {"agent": "ToolCall", "graph": "ToolResult"}[kind]
    names = ", ".join(["Graph", used] if yaml else [used])
    ours = f"from {name}_tools import add\n"
    lines = ["", "from pathlib import Path", "from typing import Any", ""] if yaml else [""]
    lines += [f"from orchestrator import {names}", "from orchestrator.testing import ScriptedModel", ""]
    return "\n".join(lines) + "\n" + (ours + _LOAD.format(name=name) if yaml else _IMPORT.format(name=name) + ours)


def _readme(kind: str, name: str, yaml: bool) -> str:
    look, run = commands(kind, name, yaml=yaml)
    return README.format(name=name, kind=kind, what=_WHAT[kind], look=look, run=run, hint=_HINT[kind])
