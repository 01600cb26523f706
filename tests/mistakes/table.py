"""Mistakes: on the command line, in YAML and in Python.

`says` and `never` of the first sixty were written before any answer. Some of these rows were adapted afterwards to an
answer that was as good in other words, and later rows were written together with their answers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A mistake, and its answer."""

    name: str
    does: tuple[str, ...] | str
    """Words of a command; or a replacement in `SHOP`, a YAML file; or a program in Python."""
    says: tuple[str, ...]
    """Parts of a good answer, in any order: the name of the thing, the fault and the fix."""
    never: tuple[str, ...] = ()
    """What would be wrong advice here."""


PYTHON_WORDS = (
    "Traceback",
    "KeyError",
    "TypeError",
    "ValueError",
    "AttributeError",
    "NoneType",
    "None",
    "'str' object",
    "dict",
    "<class",
    "pydantic",
    "object has no",
    "unexpected keyword",
    "validation error",
    "errors.pydantic.dev",
)
"""What no answer on the command line says: whoever types a command may not know Python."""

FILES = {
    "shop.yaml": """\
name: shop
state:
  fields:
    order: {type: str, default: ""}
    payment: {type: any, default: null}
    note: {type: str, default: ""}
input: order
output: payment
nodes:
  wait: {kind: wait, event: paid, match: {order: order}, into: payment}
  ok: {kind: confirm, prompt: "Ship it?", show: [order]}
edges: |
  START -> wait -> ok
  ok -> END : approved
  ok -> STOP : denied
""",
    "approval.yaml": """\
name: approval
state: {fields: {order: str}}
input: order
output: order
nodes:
  ok: {kind: confirm, prompt: "Ship it?", show: [order]}
edges: |
  START -> ok
  ok -> END : approved
  ok -> STOP : denied
""",
    "two.yaml": """\
name: two
state: {fields: {question: str, lang: {type: str, default: en}, answer: {type: str, default: ""}}}
input: [question, lang]
output: answer
nodes:
  draft: {kind: complete, prompt: "{question}", result: answer}
edges: START -> draft -> END
""",
    "faulty.yaml": """\
name: faulty
state: {fields: {q: str}}
nodes:
  d: {kind: complet, prompt: "{q}", result: q}
edges: START -> d -> ee
""",
    "broken.json": '{"name": "x", "nodes": {',
    "fails.py": """\
from pydantic import BaseModel
from orchestrator import Graph, node

class State(BaseModel):
    x: str = ""

@node
def divide(state: State):
    return {"x": str(1 / 0)}

@node
def greet(state: State):
    return {"x": "hello"}

fails = Graph(name="fails", state=State, input="x", nodes={"divide": divide}, edges="START -> divide -> END")
hello = Graph(name="hello", state=State, input="x", nodes={"greet": greet}, edges="START -> greet -> END")
""",
    "empty.py": "x = 1\n",
    "arrow.py": """\
from orchestrator import Graph, node

@node
def look(state):
    return None

lost = Graph(name="lost", state={"fields": {}}, nodes={"look": look}, edges='''
START -> look
look => END
''')
""",
    "syntax.py": "def f(:\n",
}
FILES["asks.py"] = """\
from pydantic import BaseModel
from orchestrator import Graph
from orchestrator.nodes import Confirm

class State(BaseModel):
    tool: str = ""
    args: dict[str, object] = {}

asks = Graph(
    name="asks", state=State, input="tool", nodes={"approve": Confirm(tool="tool", args="args")},
    edges="START -> approve -> END : approved\\napprove -> END : denied",
)
"""
BEFORE: tuple[tuple[str, ...], ...] = (
    ("run", "shop.yaml", "19", "--run-id", "waits"),
    ("run", "approval.yaml", "19", "--run-id", "asks"),
    ("run", "fails.py:hello", "x", "--run-id", "done"),
    ("run", "fails.py:fails", "x", "--run-id", "failed"),
)
"""Commands before the first mistake."""

COMMANDS = (
    Mistake("a command's name", ("shwo", "done"), ("shwo", "show")),
    Mistake("a graph's name", ("run", "tool_usr", "x"), ("tool_usr", "did you mean", "tool_user")),
    Mistake("a file that is not there", ("run", "shopp.yaml", "x"), ("shopp.yaml", "no file", "shop.yaml")),
    Mistake("a file with two graphs", ("run", "fails.py", "x"), ("fails.py:fails", "fails.py:hello", "choose")),
    Mistake("a graph of a file", ("run", "fails.py:helo", "x"), ("helo", "did you mean", "hello")),
    Mistake("a file without a graph", ("run", "empty.py", "x"), ("empty.py", "contains no graph"), ("openai",)),
    Mistake("a file with a syntax error", ("run", "syntax.py", "x"), ("syntax.py", "line 1")),
    Mistake("no question", ("run", "tool_user"), ("question", "QUESTION", "--input")),
    Mistake("a question without quotes", ("run", "tool_user", "What", "is", "2+2"), ("is", "quote")),
    Mistake("a question where there are fields", ("run", "two.yaml", "hi"), ("two", "--input", "question, lang")),
    Mistake("input that is not JSON", ("run", "two.yaml", "--input", "{question: hi}"), ("--input", "not JSON", '"')),
    Mistake("a field of the input", ("run", "two.yaml", "--input", '{"quesion": "hi"}'), ("quesion", "question")),
    Mistake("input that is a text", ("run", "two.yaml", "--input", '"hi"'), ("question", "lang", "a list of 2 values")),
    Mistake(
        "the type of an input",
        ("run", "approval.yaml", "--input", '{"order": 19}'),
        ("order", "string", "19", "a number"),
    ),
    Mistake("an option of a graph", ("run", "tool_user", "x", "--set", "max_step=5"), ("max_step", "max_steps")),
    Mistake(
        "a value of an option", ("run", "tool_user", "x", "--set", "max_steps=many"), ("max_steps", "many", "integer")
    ),
    Mistake("an option without a value", ("run", "tool_user", "x", "--set", "max_steps"), ("max_steps", "NAME=VALUE")),
    Mistake("options of a file", ("run", "shop.yaml", "x", "--set", "rounds=3"), ("rounds", "shop.yaml", "no options")),
    Mistake(
        "a group of tools",
        ("run", "tool_user", "x", "--tools", "arithmetics"),
        ("arithmetics", "did you mean", "arithmetic"),
    ),
    Mistake("a file of tools", ("run", "tool_user", "x", "--tools", "mine.py"), ("mine.py", "no file")),
    Mistake("a bare model", ("run", "tool_user", "x", "--model", "gpt-5"), ("gpt-5", "openai:gpt-5")),
    Mistake("a model without a key", ("run", "tool_user", "x", "--model", "openai:gpt-5"), ("OPENAI_API_KEY",)),
    Mistake(
        "a risk", ("run", "tool_user", "x", "--approve", "all"), ("--approve", "all", "none, read, write or dangerous")
    ),
    Mistake(
        "a run's id with a space",
        ("run", "tool_user", "x", "--run-id", "my run"),
        ("--run-id", "my run", "without spaces"),
    ),
    Mistake("no steps", ("run", "tool_user", "x", "--max-steps", "0"), ("--max-steps", "greater than or equal to 1")),
    Mistake("a path in place of a store", ("runs", "--store", "runs.db"), ("runs.db", "sqlite:///runs.db")),
    Mistake("a run that is not there", ("show", "nothing"), ("nothing", "orchestrator runs")),
    Mistake("a status", ("runs", "--status", "done"), ("done", "completed")),
    Mistake("a time", ("runs", "--since", "yesterday"), ("--since", "yesterday", "2h", "date")),
    Mistake("a label", ("runs", "--label", "user:ann"), ("--label", "user:ann", "K=V")),
    Mistake("a record that is not there", ("show", "done", "--at", "99"), ("--at 99", "records")),
    Mistake("approving a run that ended", ("approve", "done"), ("done", "completed", "no question")),
    Mistake("answering an approval", ("answer", "asks", "yes"), ("approve asks", "deny asks")),
    Mistake("resuming a run that failed", ("resume", "failed"), ("failed", "--retry")),
    Mistake("resuming a run that completed", ("resume", "done"), ("done", "completed", "fork"), ("--retry",)),
    Mistake(
        "an event's name", ("send", "waits", "payed", '{"order": "19"}'), ("payed", "no node", "did you mean", "paid")
    ),
    Mistake("an event's data", ("send", "waits", "paid", "{order: 19}"), ("not JSON", '"')),
    Mistake("an event that does not match", ("send", "waits", "paid", '{"order": 19}'), ("order", '"19"')),
    Mistake("an event after the end", ("send", "done", "paid", "{}"), ("done", "completed", "ended")),
    Mistake("an item of memory", ("memory", "get", "users/1", "diet"), ("diet", "users/1", "memory list")),
    Mistake("an empty key of memory", ("memory", "put", "users/1", "", "x"), ("key", "''", "1 to 200")),
    Mistake("a format", ("render", "shop.yaml", "--format", "jpg"), ("jpg", "svg", "png")),
    Mistake(
        "a bug of a node",
        ("run", "fails.py:fails", "x"),
        ('File "fails.py", line 9, in divide', "orchestrator show", "--traceback"),
    ),
    Mistake("a bug of a node, later", ("show", "failed"), ('File "fails.py", line 9, in divide', "--traceback")),
    Mistake("an arrow of a Python file", ("run", "arrow.py", "x"), ("arrow.py", "graph 'lost'", "line 3 of its edges")),
    Mistake("an edge of a faulty node", ("check", "faulty.yaml"), ("'complet'", "leads to 'ee', which is not a node")),
    Mistake("a kind of project", ("new", "agnet", "x"), ("'agnet' is not one of", "did you mean 'agent'?")),
    Mistake(
        "the only field of the input",
        ("run", "tool_user", "--input", '{"questoin": "x"}'),
        ("questoin", "did you mean 'question'"),
    ),
    Mistake("an option of another one", ("check", "shop.yaml", "--tools", "mine.py"), ("--tools needs",), ("--draw",)),
    Mistake("two options of another one", ("check", "shop.yaml", "--tools", "x", "--draw", "svg"), ("--draw need",)),
    Mistake(
        "tools of its own left out",
        ("run", "asks.py", "send_money"),
        ("at approve", "'send_money' is not an available tool", "name its file", "--tools FILE.py"),
    ),
    Mistake(
        "a run of a program",
        ("resume", "program", "--retry"),
        ("--graph", "A Python program started it", "'batch'", "FILE.py"),
        ("--graph batch",),
    ),
    Mistake("a broken graph file", ("check", "broken.json"), ("broken.json", "line 1")),
)

YAML: tuple[tuple[Mistake, str], ...] = (
    (Mistake("a kind", "kind: wait, ", ("line 10", "wiat", "did you mean", "wait")), "kind: wiat, "),
    (Mistake("a key", "nodes:", ("node", "did you mean", "nodes")), "node:"),
    (Mistake("a node in an edge", "wait -> ok", ("okay", "did you mean", "ok")), "wait -> okay"),
    (Mistake("an outcome", ": approved", ("approvd", "approved")), ": approvd"),
    (Mistake("a type", "type: str", ("string", "did you mean", "str")), "type: string"),
    (Mistake("an input field", "input: order", ("ordr", "did you mean", "order")), "input: ordr"),
    (Mistake("a field of a node", "into: payment", ("paymnt", "did you mean", "payment")), "into: paymnt"),
    (Mistake("a setting of a node", "event: paid", ("evnt", "did you mean", "event")), "evnt: paid"),
    (Mistake("a tab", "  wait:", ("line 10", "tab")), "\twait:"),
    (Mistake("a default", 'default: ""', ("order", "string", "7", "quote it")), "default: 7"),
)
"""Mistake in `shop.yaml`: what it replaces, and by what; found by `check`."""

PYTHON = (
    Mistake(
        "a graph's name in Python",
        "async with Executor(graphs=[graph]) as executor:\n    await executor.start('gg', 'x')",
        ("no graph 'gg'", "did you mean 'g'", "Executor(graphs=[...])"),
        ("is a run of",),
    ),
    Mistake(
        "an edge to nowhere",
        'Graph(name="g", state=S, nodes={"a": a}, edges="START -> a -> b")',
        ("'b'", "not a node", "add the node"),
    ),
    Mistake("an update of no field", 'await one(lambda state: {"anser": "x"})', ("anser", "did you mean", "answer")),
    Mistake(
        "a text in place of an update",
        'await one(lambda state: "x")',
        ("a returned 'x'", "mapping", "such as {'field': value}"),
    ),
    Mistake("a store's path", 'Executor(store="runs.db")', ("runs.db", "sqlite:///runs.db")),
    Mistake("a model's name", 'Executor(model="gpt-5")', ("gpt-5", "OpenAIModel('gpt-5')")),
    Mistake("a closed executor", 'await Executor().start(graph, "x")', ("async with",)),
    Mistake("a risk", '@tool(risk="low")\ndef f(x: str) -> str:\n    "F."\n    return x', ("low", "read", "write")),
    Mistake("a tool's arguments", '@tool\ndef f(*words: str) -> str:\n    "F."\n    return ""', ("*words", "list")),
    Mistake(
        "two branches, one field",
        """
g = Graph(
    name="g", state=S, nodes={"fork": node(lambda: None), "a": a, "b": a, "join": node(lambda: None).with_(join="all")},
    edges="START -> fork\\nfork -> a\\nfork -> b\\na -> join\\nb -> join\\njoin -> END",
)
(await g.run({})).raise_for_status()""",
        ("'answer'", "a and b", "reducer"),
    ),
    Mistake(
        "a list of nodes",
        'Graph(name="g", state=S, nodes=[a], edges="START -> a -> END")',
        ("nodes is a list", "mapping", "{'name': node}"),
        ("has no attribute",),
    ),
    Mistake(
        "limits as a mapping",
        'Graph(name="g", state=S, nodes={"a": a}, edges="START -> a -> END", limits={"step": 5})',
        ("step", "did you mean", "steps"),
        ("errors.pydantic.dev",),
    ),
    Mistake("a node's parameter", "node(lambda stat: None)", ("stat", "cannot receive", "state, ctx, item and deps")),
    Mistake("a whole state", "await one(lambda state: state)", ("a whole S", "only what changed", "{'field': value}")),
    Mistake(
        "an outcome that is not declared",
        'await one(lambda state: __import__("orchestrator").Outcome("yes"))',
        ("'yes'", "not declared", "'done'"),
    ),
    Mistake(
        "no model",
        """
from orchestrator.nodes import Complete
b = Complete(prompt="{question}", result="answer")
await Graph(name="g", state=S, input="question", nodes={"b": b}, edges="START -> b -> END").run("x")""",
        ("'b'", "uses a model", "model=..."),
    ),
    Mistake(
        "a number for a retry",
        "node(retry=3)(lambda state: None)",
        ("retry", "write Retry(attempts=3)"),
        ("errors.pydantic.dev",),
    ),
    Mistake("a text for a timeout", 'a.with_(timeout="5 s")', ("timeout", "number", "5 s"), ("errors.pydantic.dev",)),
    Mistake("a field in place of fields", "node(reads=3)(lambda state: None)", ("reads", "a list"), ("pydantic.dev",)),
    Mistake("a number for outcomes", "node(outcomes=3)(lambda: None)", ("outcomes", "a list of names"), ("iterable",)),
    Mistake(
        "a number for limits",
        'Graph(name="g", state=S, nodes={"a": a}, edges="START -> a -> END", limits=5)',
        ("limits", "write Limits(steps=5)"),
        ("errors.pydantic.dev",),
    ),
    Mistake(
        "an arrow in Python",
        'Graph(name="g", state=S, nodes={"a": a}, edges="START -> a\\na => END")',
        ("graph 'g'", "line 2 of its edges", "write '->'"),
    ),
    Mistake(
        "a call without await",
        "await forgetful(lambda found: found.value)",
        ("'coroutine' object", "write `await` before the call"),
    ),
    Mistake(
        "a result without await",
        "await forgetful(lambda found: found)",
        ("'answer'", "write `await` before the call"),
    ),
    Mistake("a limit", "Limits(step=5)", ("step", "did you mean", "steps")),
)
"""Programs behind `BEGIN`, in a coroutine."""

BEGIN = """
from pydantic import BaseModel
from orchestrator import Executor, Graph, Limits, node, tool

class S(BaseModel):
    question: str = ""
    answer: str = ""

@node
def a(state: S):
    return {"answer": "x"}

graph = Graph(name="g", state=S, input="question", nodes={"a": a}, edges="START -> a -> END", output="answer")

async def one(function):
    def step(state: S):
        return function(state)
    await one_node(step)

async def one_node(step):
    done = await Graph(
        name="g", state=S, input="question", nodes={"a": node(step)}, edges="START -> a -> END", output="answer"
    ).run("x")
    done.raise_for_status()

async def forgetful(use):
    async def step(ctx):
        found = ctx.memory.get("a", "b")
        found.close()
        return {"answer": use(found)}
    await one_node(step)
"""
