"""Tools of other frameworks: those of LangChain, pydantic-ai and the OpenAI Agents SDK.

Nothing of these packages is imported. An object is recognised by the public attributes by which its own framework calls
it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from orchestrator.graph.signatures import is_awaitable
from orchestrator.json import JsonObject
from orchestrator.tools.schema import Wants
from orchestrator.tools.tool import Tool, checked

_Invoke: TypeAlias = Callable[[Mapping[str, object], object, str], Awaitable[object]]
"""Calls a tool with arguments, the context of the calling step, which is None outside of a run, and the call's id."""


class ForeignTool(Tool):
    """A tool of another framework. It runs on asyncio, as its framework does."""

    _wants_ = Wants(given=())

    def __init__(self, thing: object, name: str, description: str, parameters: JsonObject, invoke: _Invoke) -> None:
        """
        Args:
            thing: the object of the other framework.
            name: its name.
            description: its description for models.
            parameters: the JSON Schema of its arguments.
            invoke: calls it.
        """
        self.thing, self.name, self.description, self.parameters = thing, name, description, parameters
        self._invoke = invoke
        checked(self.name, self.risk, self.effect, self.timeout)

    def _function(self) -> Callable[..., object]:
        return self._invoke

    def _bind(
        self, args: Mapping[str, object], key: str | None, ctx: object, env: object = None
    ) -> Callable[[], object]:
        return partial(self._invoke, dict(args), ctx, key or uuid4().hex)


def foreign_tool(thing: Any) -> Tool | None:
    """Return an object of another framework as a tool; None if it is none that is known.

    Args:
        thing: a `BaseTool` of LangChain, a `Tool` of pydantic-ai, or a `FunctionTool` of the OpenAI Agents SDK.

    Raises:
        TypeError: it is one, and its name or its schema cannot be used.
    """
    if isinstance(thing, type) or not isinstance(getattr(thing, "name", None), str):
        return None
    for kind, adapt in _KINDS.items():
        if all(hasattr(thing, attribute) for attribute in kind):
            return adapt(thing)
    return None


# -- LangChain --------------------------------------------------------------------------------------------------------


def _langchain(thing: Any) -> Tool:
    """Adapt a `BaseTool`. Its schema leaves out arguments that LangChain's own agents inject.

    Raises:
        TypeError: a graph cannot inject one of them.
    """
    schema = thing.tool_call_schema
    is_json = isinstance(schema, Mapping)  # written by hand: nothing is injected
    parameters = dict(schema) if is_json else schema.model_json_schema()
    given = () if is_json else schema.model_fields
    takes_id = False
    for name, field in () if is_json else thing.get_input_schema().model_fields.items():
        if any(getattr(one, "__name__", "") == "InjectedToolCallId" for one in field.metadata):
            takes_id = True
        elif name not in given and field.is_required():
            raise TypeError(
                f"tool {thing.name!r} of LangChain has the argument {name!r}, which LangChain's agents inject: give it "
                "a default, or write the tool with @tool and ctx: Context"
            )

    async def invoke(args: Mapping[str, object], ctx: object, call: str) -> object:
        if not takes_id:
            return await thing.ainvoke(dict(args))
        found = await thing.ainvoke({"args": dict(args), "name": thing.name, "type": "tool_call", "id": call})
        return getattr(found, "content", found)

    return ForeignTool(thing, thing.name, thing.description, parameters, invoke)


# -- pydantic-ai ------------------------------------------------------------------------------------------------------


def _pydantic_ai(thing: Any) -> Tool:
    """Adapt a `Tool`, whose function may take a `RunContext`."""
    schema = thing.function_schema

    async def invoke(args: Mapping[str, object], ctx: object, call: str) -> object:
        found = await schema.call(schema.validator.validate_python(dict(args)), _Context(thing.name, ctx))
        return found.return_value if hasattr(found, "return_value") and hasattr(found, "metadata") else found

    return ForeignTool(thing, thing.name, thing.description or "", dict(schema.json_schema), invoke)


class _Context:
    """What a tool of another framework gets as its context: the `deps` of the executor, and the name of the tool.

    What the framework itself keeps there, in private attributes, is None.
    """

    run_config = tool_call = agent = None

    def __init__(self, tool: str, ctx: Any) -> None:
        self.deps = self.context = getattr(ctx, "deps", None)
        self.tool_name = tool

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)  # attributes that Python probes for
        if name.startswith("_"):
            return
        raise AttributeError(
            f"tool {self.tool_name!r} reads {name!r} of its context, and outside of its own framework it has `deps` "
            "(`context`) and `tool_name` only: give it what it needs as deps, Executor(deps=...)"
        )


# -- OpenAI Agents SDK ------------------------------------------------------------------------------------------------


def _openai_agents(thing: Any) -> Tool:
    """Adapt a `FunctionTool`, which takes its arguments as JSON."""

    async def invoke(args: Mapping[str, object], ctx: object, call: str) -> object:
        found = thing.on_invoke_tool(_Context(thing.name, ctx), json.dumps(dict(args)))
        return await found if is_awaitable(found) else found

    return ForeignTool(thing, thing.name, thing.description, dict(thing.params_json_schema), invoke)


_KINDS: Mapping[tuple[str, ...], Callable[[Any], Tool]] = {
    ("tool_call_schema", "ainvoke", "description"): _langchain,
    ("function_schema", "takes_ctx", "tool_def"): _pydantic_ai,
    ("params_json_schema", "on_invoke_tool", "description"): _openai_agents,
}
"""Attributes of an object -> what makes a tool of it."""
