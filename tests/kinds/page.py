"""docs/kinds.md, and the drawings and YAML files beside the examples in docs/kinds."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from orchestrator import Graph
from orchestrator.graph import Node
from orchestrator.graph.writing import to_plain_yaml
from orchestrator.render import to_svg
from tests.kinds.shipped import (
    FieldFacts,
    chosen_outcomes,
    common_fields,
    description,
    failures,
    own_fields,
    shipped,
    summary,
)
from tests.render.pictures import shape

DOCS = Path(__file__).parents[2] / "docs"
PLACE = DOCS / "kinds"
RUN = "\n\n# Run it.\n"
"""Separates the graph of an example from its run."""
COMMAND = "python -m tests.kinds"

_HEAD = """\
# Node kinds

<!-- Made by `python -m tests.kinds` from the docstrings of orchestrator/nodes and the examples in docs/kinds. -->

Every kind of node in `orchestrator.nodes`: what it does, its fields, the state fields that it reads and writes, its
outcomes, and an example in Python and in [YAML](yaml.md). A kind of your own is [a function](concepts.md#graphs) or a
subclass of `Node`.

A field that is a *port* contains the name of a state field, which the node reads or writes. `State` of a kind, such as
`Think.State`, is a class to inherit from with the state fields that its ports name by default. Defaults that are long
texts are in the source.

Every kind has the outcomes `error`, `timeout` and `exhausted`, which are taken if an edge names them
([routes](concepts.md#routes)).
"""
_COMMON = """\
## Fields of every kind

These fields belong to every kind, also to `@node` functions. [Retry a node](concepts.md#retry-a-node) has the fields of
`retry`, and the errors that are retried.
"""


@cache
def example(kind: str) -> ModuleType:
    """The example of a kind.

    Raises:
        AssertionError: there is none, or it does not show the kind; says what to write.
    """
    path = PLACE / f"{kind}.py"
    assert path.exists(), (
        f"node kind {kind!r} has no example: write docs/kinds/{kind}.py with a `graph` that has such a node, and "
        "below a line '# Run it.' an `async def main()` that runs it and asserts its result, as in docs/kinds/vote.py; "
        f"then run {COMMAND}"
    )
    spec = importlib.util.spec_from_file_location(kind, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[kind], before = module, sys.modules.get(kind)  # so that `call:count` leads to it
    try:
        spec.loader.exec_module(module)
    finally:
        if before is not None:
            sys.modules[kind] = before
    assert RUN in path.read_text(encoding="utf-8"), f"docs/kinds/{kind}.py has no line '# Run it.' before its main()"
    assert kind in [node.kind for node in module.graph.nodes.values()], f"docs/kinds/{kind}.py shows no {kind} node"
    return module


def graph_of(kind: str) -> Graph:
    """The graph of a kind's example."""
    graph: Graph = example(kind).graph
    return graph


def shown_node(kind: str) -> Node:
    """The node of this kind in its example."""
    return next(node for node in graph_of(kind).nodes.values() if node.kind == kind)


def files() -> dict[str, str]:
    """Every generated file below docs, with its text."""
    found = {"kinds.md": page()}
    for kind in shipped():
        found[f"kinds/{kind}.yaml"] = to_plain_yaml(graph_of(kind))
        found[f"kinds/{kind}.svg"] = to_svg(graph_of(kind), engine="simple")
    return found


def stale() -> list[str]:
    """The generated files below docs that are not what they would be now. Of drawings only the parts count."""
    found = []
    for name, now in files().items():
        path = DOCS / name
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        same = bool(kept) and shape(kept) == shape(now) if name.endswith("svg") else kept == now
        found += [] if same else [name]
    return found


def page() -> str:
    """docs/kinds.md."""
    kinds = shipped()
    rows = [f"| [`{kind}`](#{kind}) | `{cls.__name__}` | {_cell(summary(cls))} |" for kind, cls in kinds.items()]
    index = "\n".join(["| kind | class | |", "|---|---|---|", *rows])
    common = _table(common_fields(), ports=False)
    parts = [_HEAD, index, _COMMON + "\n" + common, *(section(kind, cls) for kind, cls in kinds.items())]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def section(kind: str, cls: type[Node]) -> str:
    """The part about one kind."""
    parts = [f"## {kind}", description(cls), f"![A graph with a node of kind {kind}](kinds/{kind}.svg)"]
    fields = own_fields(cls)
    if fields:
        parts.append(_table(fields, ports=any(field.port for field in fields)))
    parts.append(_outcomes(kind, cls))
    raised = [f"- `{name}`: {words}" for name, words in failures(cls)]
    if raised:
        parts.append("\n".join(["A step fails with", "", *raised]))
    code = (PLACE / f"{kind}.py").read_text(encoding="utf-8")
    parts += [
        f"[In Python](kinds/{kind}.py):",
        f"```python\n{code.strip()}\n```",
        f"[The same graph in YAML](kinds/{kind}.yaml):",
        f"```yaml\n{to_plain_yaml(graph_of(kind)).strip()}\n```",
    ]
    return "\n\n".join(parts)


def _outcomes(kind: str, cls: type[Node]) -> str:
    names = ", ".join(f"`{name}`" for name in shown_node(kind).outcomes)
    text = f"**Outcomes:** {names}"
    if chosen_outcomes(cls):
        text = f"**Outcomes:** the node's fields decide which there are; in the example below {names}"
    reserved = ", ".join(f"`{name}`" for name in cls.if_named)
    return f"{text}. If an edge names it: {reserved}." if reserved else f"{text}."


def _table(fields: list[FieldFacts], *, ports: bool) -> str:
    head = ["field", "type", *(["port"] if ports else []), "default", "meaning"]
    rows = []
    for field in fields:
        default = field.default if field.default in ("required",) or field.default.startswith("a text") else ""
        cells = [f"`{field.name}`", f"`{field.type}`", *([field.port] if ports else [])]
        rows.append([*cells, default or f"`{field.default}`", field.meaning])
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
