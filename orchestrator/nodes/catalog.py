"""Facts about node kinds, taken from their code: summaries, fields, ports and outcomes.

The documentation and the palette of the live page are generated from them.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import JsonValue
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import orchestrator.nodes as nodes
from orchestrator.graph.model import Node, Port

Category: TypeAlias = Literal["model", "people", "code and tools", "waiting", "graphs", "state"]
"""Purpose of a kind: it asks a model or people, calls code, waits, runs a graph, or works only on the state."""
_LONG = 40
"""Maximum number of characters of a default that is shown."""


@dataclass(frozen=True)
class FieldFacts:
    """Facts about a field of a kind."""

    name: str
    type: str
    default: str
    port: str
    """`reads` or `writes`, with the type of the state field; empty if the field is not a port."""
    meaning: str

    @property
    def required(self) -> bool:
        """True if every node of the kind must set it."""
        return self.default == _REQUIRED


_REQUIRED = "required"


def kinds() -> dict[str, type[Node]]:
    """Return the kinds of the library, by name."""
    return {kind: getattr(nodes, name) for kind, name in sorted(nodes.KINDS.items())}


def own_fields(cls: type[Node]) -> list[FieldFacts]:
    """Return the fields that a kind adds to those of all kinds."""
    return [field for field in fields(cls) if field.name not in Node.model_fields]


def common_fields() -> list[FieldFacts]:
    """Return the fields of all kinds."""
    return fields(Node)


def summary(cls: type[Node]) -> str:
    """Return the first sentence of the description."""
    return re.split(r"(?<=\.)\s", " ".join(_docstring(cls).split()), maxsplit=1)[0]


def description(cls: type[Node]) -> str:
    """Return the description, without its section on errors."""
    return _docstring(cls).partition("\nRaises:\n")[0].strip()


def failures(cls: type[Node]) -> list[tuple[str, str]]:
    """Return pairs of an error and the condition under which a step of the kind raises it."""
    raised = inspect.cleandoc(_docstring(cls).partition("\nRaises:\n")[2])
    entries = re.findall(r"^(\w+): (.*(?:\n {4}.*)*)", inspect.cleandoc(raised), re.M)
    return [(name, " ".join(words.split())) for name, words in entries]


def chosen_outcomes(cls: type[Node]) -> bool:
    """Return True if the outcomes depend on the fields of the node."""
    return "outcomes" in {name for base in cls.__mro__[: cls.__mro__.index(Node)] for name in vars(base)}


def category(cls: type[Node]) -> Category:
    """Return the purpose of a kind."""
    if cls.asks is not None:
        return "people" if cls.asks == "person" else "model"
    if "graph" in cls.model_fields:
        return "graphs"
    if cls.waits:
        return "waiting"
    calls = cls.calls_code is not None or cls.calls_tools is not Node.calls_tools
    return "code and tools" if calls else "state"


def sample(cls: type[Node]) -> Mapping[str, Any]:
    """Return the data of a minimal node of a kind: its required fields, with the first of their examples."""
    examples = {info.alias or name: info.examples[0] for name, info in cls.model_fields.items() if info.examples}
    return {"kind": cls.kind, **dict(sorted(examples.items(), key=_is_graph))}


def _is_graph(item: tuple[str, Any]) -> bool:
    """Return True for the field `graph`, which is sorted to the end, as in graph files."""
    return item[0] == "graph"


def _docstring(cls: type[Node]) -> str:
    return inspect.cleandoc(cls.__dict__.get("__doc__") or "")


def fields(cls: type[Node]) -> list[FieldFacts]:
    texts = {name: text for base in reversed(cls.__mro__) for name, text in meanings(base).items()}
    ports = cls.port_types()
    found = []
    for name, info in cls.model_fields.items():
        meaning = texts.get(name, "")
        port = "" if name not in ports else _port(cls, name, ports[name], meaning)
        found.append(FieldFacts(info.alias or name, _shown(info.annotation), _default(info), port, meaning))
    return found


@cache
def meanings(cls: type) -> dict[str, str]:
    """Return the texts below the fields of a class, which Python does not keep; none if the source is missing."""
    if not cls.__module__.startswith("orchestrator."):
        return {}
    try:
        (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls))).body
    except OSError:
        return {}
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, after in zip(tree.body, tree.body[1:], strict=False):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, str):
            found[one.target.id] = " ".join(text.split())
    return found


def _port(cls: type[Node], name: str, port: Port, meaning: str) -> str:
    written = meaning.startswith("Field that gets") if cls.fills is None else name in cls.fills
    kind = "" if port.type is None else f" `{port.type.__name__}`"
    return f"{'writes' if written else 'reads'}{kind}"


def _shown(annotation: Any) -> str:
    """Return a type as a person writes it."""
    if annotation is JsonValue:
        return "JsonValue"
    origin, inside = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__value__"):
        return _shown(annotation.__value__)
    if origin is Literal:
        return " | ".join(repr(value) for value in inside)
    if origin in (Union, types.UnionType):
        return " | ".join(_shown(one) for one in inside)
    if getattr(origin, "__name__", "") == "Annotated" or hasattr(annotation, "__metadata__"):
        return _shown(inside[0] if inside else annotation.__origin__)
    if annotation is type(None):
        return "None"
    if origin is not None:
        name = getattr(origin, "__name__", str(origin))
        return f"{name}[{', '.join('...' if one is Ellipsis else _shown(one) for one in inside)}]"
    return getattr(annotation, "__name__", str(annotation))


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return _REQUIRED
    value = info.default
    if value is PydanticUndefined:
        return repr(info.default_factory() if info.default_factory is not None else None)  # type: ignore[call-arg]
    if isinstance(value, str) and len(value) > _LONG:
        return f"a text of {len(value)} characters"
    return repr(value)
