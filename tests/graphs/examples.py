"""The graph in docs/examples that is there in two forms, and each form as a program of the crash kit."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from orchestrator import Approve, Graph

PLACE = Path(__file__).parents[2] / "docs" / "examples"
NAMES = ("first_two",)
FORMS = ("py", "yaml")
ASKED = "A desk"


def loaded(name: str) -> ModuleType:
    """A file of the examples, as a module."""
    known = sys.modules.get(f"examples_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"examples_{name}", PLACE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[f"examples_{name}"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_file(name: str, form: str) -> Graph:
    """An example in one of its forms."""
    if form == "yaml":
        return Graph.load(PLACE / f"{name}.yaml")
    graph: Graph = loaded(name).graph
    return graph


def ordered(name: str, form: str) -> Graph:
    """An example whose branches run one after the other, so that a crash cannot change which of them are first."""
    return of_file(name, form).with_limits(concurrency=1)


def reference(name: str, form: str) -> str:
    """What the command line takes for it."""
    return f"{PLACE}/{name}.{form}" + (":graph" if form == "py" else "")


def models() -> dict[str, Any]:
    """The two models that the examples name."""
    module = loaded("models")
    return {"cheap": module.cheap, "clever": module.clever}


def program(name: str, form: str) -> dict[str, Any]:
    """What a process of the crash kit runs."""
    graph = ordered(name, form)
    return {"graph": graph, "input": ASKED, "models": models(), "answer": lambda question: Approve()}


globals().update({f"{name}_{form}": partial(program, name, form) for name in NAMES for form in FORMS})
