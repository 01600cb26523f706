"""Refuses what an executor cannot be made of, before it opens anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType, ModuleType

from orchestrator.errors import InvalidValue
from orchestrator.graph.model import GraphDefinition


def check_arguments(
    *, store: object, graphs: object, model: object, models: object, pools: object, observers: object
) -> None:
    """Refuse arguments of `Executor` of another type.

    Raises:
        InvalidValue: names the argument, what it is and what to give.
    """
    if not isinstance(store, str) and (isinstance(store, type) or not callable(getattr(store, "append", None))):
        raise _wrong("store", store, "give a URL, such as 'sqlite:///runs.db', or a store")
    check_code(graphs=graphs, model=model, models=models, pools=pools)
    if not isinstance(observers, Sequence):
        raise _wrong("observers", observers, "give a list of functions of (run, seq)")


def check_code(*, graphs: object, model: object, models: object, pools: object) -> None:
    """Refuse arguments of `Executor` or `App` of another type.

    Raises:
        InvalidValue: names the argument, what it is and what to give.
    """
    if isinstance(graphs, GraphDefinition):
        raise InvalidValue(f"graphs= is one graph: give a list, graphs=[{graphs.name}]", where="graphs")
    if not isinstance(graphs, Sequence) or isinstance(graphs, str):
        raise _wrong("graphs", graphs, "give a list of graphs")
    for one in graphs:
        if not isinstance(one, GraphDefinition):
            raise _wrong("graphs", one, _graph_meant(one), "an item of ")
    if model is not None:
        _check_model("model", model)
    if models is not None and not isinstance(models, Mapping):
        raise _wrong("models", models, "give a mapping, models={'name': model}")
    for name, one in (models or {}).items():
        _check_model(f"models[{name!r}]", one)
    if pools is not None and not isinstance(pools, Mapping):
        raise _wrong("pools", pools, "give a mapping, pools={'name': 2}")
    for name, size in (pools or {}).items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidValue(
                f"pools={{{name!r}: {size!r}}}: give the number of steps that may run at the same time", where="pools"
            )


def _graph_meant(given: object) -> str:
    """What to give instead of something that is no graph but has one or makes one."""
    if isinstance(given, ModuleType):
        name = given.__name__.rpartition(".")[2]
        found = [one for one, value in vars(given).items() if isinstance(value, GraphDefinition)]
        if found:
            return f"give the graph in it, {' or '.join(f'{name}.{one}' for one in found[:3])}"
    elif isinstance(given, FunctionType):
        return f"give the graph that it returns, {given.__name__}()"
    return "give a list of graphs"


def _check_model(where: str, model: object) -> None:
    if isinstance(model, str):
        raise InvalidValue(f"{where}={model!r} is a name: give a model, such as OpenAIModel({model!r})", where=where)
    if isinstance(model, type) or not callable(getattr(model, "complete", None)):
        raise _wrong(where, model, "give a model: an object with name, complete and stream")


def _wrong(where: str, value: object, fix: str, part: str = "") -> InvalidValue:
    kind = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    return InvalidValue(f"{part}{where}= is {kind}: {fix}", where=where)
