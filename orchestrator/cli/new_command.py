"""The command `new`: a small project that runs. Its files, and the rules for its name."""

from __future__ import annotations

import builtins
import keyword
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, UsageError
from orchestrator.cli.graph_refs import shipped
from orchestrator.cli.output import out, out_json, quoted, warn
from orchestrator.visible import shown as visible


class Kind(StrEnum):
    """Kind of a project."""

    agent = "agent"
    graph = "graph"
    tool = "tool"


def new(
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="agent|graph|tool",
            help="An agent with a tool, a graph of fixed steps with a tool, or a tool alone.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the module and the graph, or of the tool.")],
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="Where the files go. Default: ./NAME.")
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Write the graph as a YAML file.")] = False,
    json: options.Json = False,
) -> int:
    """Write a small project that runs.

    It has a graph, a tool, a test, .env.example and a README. The test needs no model, and the graph runs offline. No
    file is ever overwritten: if one is there already, nothing is written.

    Example: orchestrator new agent calculator
    """

    if yaml and kind is Kind.tool:
        raise UsageError("a tool is a Python function: leave --yaml out, or make an agent or a graph")
    check_name(name, kind.value)
    folder = Path(name) if directory is None else directory
    files = project_files(kind.value, name, yaml=yaml)
    written = _write(folder, files)
    if json:
        out_json({"directory": str(folder), "files": [path.name for path in written]})
        return COMPLETED
    out("\n".join(visible(str(path)) for path in written))
    look, run = commands(kind.value, name, yaml=yaml)
    enter = "" if folder.resolve() == Path.cwd() else f"  {visible(quoted(['cd', str(folder)]))}\n"
    warn(f"Try it:\n{enter}  pytest\n  {look}\n  {run}")
    return COMPLETED


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files, all of them or none.

    Raises:
        UsageError: a file already exists, or cannot be written.
    """
    there = [name for name in files if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise UsageError(f"{folder} has {', '.join(there)} already: choose another NAME, or another --directory")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8", newline="\n") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UsageError(f"{error.filename or folder} cannot be written ({error.strerror or error})") from None
    return written


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
    """Return the files of a project.

    Args:
        kind: `agent`, `graph` or `tool`.
        name: its name.
        yaml: whether its graph is a YAML file.

    Returns:
        Contents by file name.
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
    """Return the commands that inspect a project, and that run it."""
    if kind == "tool":
        return f"orchestrator tools {name}.py", f'orchestrator run react "What is 2 + 3?" --tools {name}.py'
    file = f"{name}.{'yaml' if yaml else 'py'}"
    return f"orchestrator check {file}", f'orchestrator run {file} "What is 2 + 3?" --tools {name}_tools.py'


def _head(kind: str, name: str, yaml: bool) -> str:
    """Return the imports of a test."""
    used = {"agent": "ToolCall", "graph": "ToolResult"}[kind]
    names = ", ".join(["Graph", used] if yaml else [used])
    ours = f"from {name}_tools import add\n"
    lines = ["", "from pathlib import Path", "from typing import Any", ""] if yaml else [""]
    lines += [f"from orchestrator import {names}", "from orchestrator.testing import ScriptedModel", ""]
    return "\n".join(lines) + "\n" + (ours + _LOAD.format(name=name) if yaml else _IMPORT.format(name=name) + ours)


def _readme(kind: str, name: str, yaml: bool) -> str:
    look, run = commands(kind, name, yaml=yaml)
    return README.format(name=name, kind=kind, what=_WHAT[kind], look=look, run=run, hint=_HINT[kind])


LONGEST = 30
_OURS = ("orchestrator", "graphs", "test", "tests", "conftest", "pytest", "setup", "main", "tool", "agent", "graph")


def check_name(name: str, kind: str) -> None:
    """Check that a name hides no module and is a valid module name.

    Args:
        name: the name.
        kind: kind of project: `agent`, `graph` or `tool`.

    Raises:
        UsageError: the name cannot be used; the message suggests another one.
    """
    fault = _form_fault(name) or _taken(name)
    if fault:
        raise UsageError(f"{name!r} {fault}; choose another one, such as {suggestion(name, kind)}")


def suggestion(name: str, kind: str) -> str:
    """Return a similar name that can be used.

    Args:
        name: the name.
        kind: kind of project.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    made = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_").removeprefix("test_").removesuffix("_test")
    made = made[: LONGEST - len(kind) - 1].strip("_").lstrip("0123456789_")
    for one in (made, f"{made}_{kind}"):
        if made and not _form_fault(one) and not _taken(one):
            return one
    return f"my_{kind}"


def _form_fault(name: str) -> str:
    if not name.isidentifier() or not name.isascii():
        return "is not the name of a module: use letters from a to z, digits and _, and begin with a letter"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "is a keyword of Python"
    if name != name.lower() or name.startswith("_"):
        return "is not the name of a module: use small letters, and begin with one"
    if name.startswith("test_") or name.endswith("_test"):
        return "is a name of tests for pytest"
    return f"has more than {LONGEST} characters" if len(name) > LONGEST else ""


def _taken(name: str) -> str:

    if name in sys.stdlib_module_names:
        return "is a module of Python"
    if name in shipped():
        return "is a graph that comes with the library"
    if hasattr(builtins, name):
        return "is a function or type of Python"
    if name in _OURS:
        return "is a name that the project, its tests or the library use"
    return next((f"would hide the installed module {one}" for one in (name, f"{name}_tools") if _installed(one)), "")


def _installed(module: str) -> bool:
    """Return True if such a module exists outside of the current directory. Nothing is imported."""
    here = os.getcwd()
    found = PathFinder.find_spec(module, [path for path in sys.path if path and os.path.abspath(path) != here])
    return found is not None and found.origin is not None
