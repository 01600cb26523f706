"""Exported interfaces: an incomplete subclass is an error when it is made, and no base class is needed."""

from __future__ import annotations

import pkgutil
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from inspect import isfunction
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import get_protocol_members, is_protocol

import orchestrator
from orchestrator import Context, Executor, Graph, node
from orchestrator.clock import Clock
from orchestrator.models import Logged, Model, ModelEvent, Reply, TextProtocol, with_middleware
from orchestrator.stores import base, items
from orchestrator.views.events import EventStyle

OPTIONAL = {(Model, "stream")}
"""Members with a default."""


def interfaces() -> Iterator[type]:
    """The protocols that packages export, those that a store may implement as well, and those that options take."""
    packages = [found.name for found in pkgutil.walk_packages(orchestrator.__path__, "orchestrator.") if found.ispkg]
    modules = map(import_module, ["orchestrator", *packages])
    found = [getattr(module, name) for module in modules for name in getattr(module, "__all__", ())]
    found += [*vars(base).values(), *vars(items).values(), Clock, EventStyle]
    return (one for one in found if isinstance(one, type) and is_protocol(one))


INTERFACES = sorted(set(interfaces()), key=lambda one: one.__name__)


def required(interface: type) -> list[str]:
    return sorted(name for name in get_protocol_members(interface) if (interface, name) not in OPTIONAL)


def made(interface: type, *bases: type, missing: str = "") -> Any:
    """An object with the members of an interface, apart from one."""
    members = {name: getattr(interface, name) for name in required(interface) if name != missing}
    return type("Mine", bases, {name: (lambda *_: None) if isfunction(one) else "x" for name, one in members.items()})()


def test_the_exported_interfaces() -> None:
    names = {one.__name__ for one in INTERFACES}
    assert names >= {"Archive", "Ask", "CacheStore", "Codec", "Engine", "Model", "RunObserver", "ServedEngine", "Store"}
    assert names >= {"Alerting", "Archivable", "Clock", "EventStyle", "ItemStore"}
    assert all(required(one) for one in INTERFACES)


@pytest.mark.parametrize("interface", INTERFACES)
def test_an_incomplete_subclass_cannot_be_made_and_the_error_names_what_is_missing(interface: type) -> None:
    with pytest.raises(TypeError, match="abstract") as raised:
        type("Mine", (interface,), {})()
    assert [name for name in required(interface) if name not in str(raised.value)] == []
    for name in required(interface):
        with pytest.raises(TypeError, match=rf"Mine .*abstract method '?{name}\b"):
            made(interface, interface, missing=name)


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_complete_object_needs_no_base_class(interface: type) -> None:
    made(interface, interface)
    if getattr(interface, "_is_runtime_protocol", False) and interface is not Model:
        assert isinstance(made(interface), interface)


# -- a model with `complete` alone ------------------------------------------------------------------------------------


class Whole:
    name = "whole"

    async def complete(
        self, messages: Any, tools: Any = (), output: Any = None, *, task: Any = None, **_: Any
    ) -> Reply:
        return Reply(text=f"{task}: {messages[-1].content}")


class Derived(Whole, Model): ...


class Text(BaseModel):
    text: str = ""


@node
async def asks(state: Text, ctx: Context) -> dict[str, str]:
    return {"text": (await ctx.model.complete("hi", task="t")).text}


@node
async def reads(state: Text, ctx: Context) -> dict[str, str]:
    events = [event async for event in ctx.model.stream("hi", task="t")]
    assert [event.text for event in events] == [""]
    return {"text": events[-1].reply.text if events[-1].reply else ""}


WAYS: dict[str, Any] = {
    "alone": lambda model: model,
    "in a layer": lambda model: with_middleware(model, Logged()),
    "in a text protocol": TextProtocol,
    "in both": lambda model: TextProtocol(with_middleware(model, Logged())),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Whole, Derived])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("work", [asks, reads], ids=["asked", "read"])
async def test_a_model_with_complete_alone_works_watched_and_streamed(kind: Any, way: str, work: Any) -> None:
    graph = Graph(name="g", state=Text, nodes={"work": work}, edges="START -> work -> END", output="text")
    async with Executor(model=WAYS[way](kind())) as executor:
        assert (await executor.start(graph)).output == "t: hi"
        async with executor.stream(graph) as events:
            assert [event.data["status"] async for event in events if event.type == "ended"] == ["completed"]


@pytest.mark.anyio
async def test_a_stream_that_a_subclass_defines_is_read() -> None:
    class Pieces(Derived):
        async def stream(self, *_: Any, **__: Any) -> AsyncIterator[ModelEvent]:
            yield ModelEvent(text="a")
            yield ModelEvent(reply=Reply(text="a"))

    graph = Graph(name="g", state=Text, nodes={"work": asks}, edges="START -> work -> END", output="text")
    async with Executor(model=Pieces()) as executor, executor.stream(graph) as events:
        assert [event.data["text"] async for event in events if event.type == "token"] == ["a"]
