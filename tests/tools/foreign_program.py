"""Tools of other frameworks, taken as tools of a run. Prints what they do as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import anyio
from agents import RunContextWrapper, WebSearchTool, function_tool  # type: ignore[import-not-found]
from langchain_core.tools import InjectedToolArg, InjectedToolCallId  # type: ignore[import-not-found]
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel
from pydantic_ai import RunContext, ToolReturn  # type: ignore[import-not-found]
from pydantic_ai import Tool as PydanticTool

from orchestrator import Context, Executor, Graph, Update, node, tool
from orchestrator.tools import Toolbox


@langchain_tool
def lc_add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@langchain_tool
async def lc_fails(city: str) -> str:
    """Fail."""
    raise ValueError(f"no {city}")


@langchain_tool
def lc_named(a: int, call: Annotated[str, InjectedToolCallId], more: Annotated[int, InjectedToolArg] = 1) -> str:
    """Return the length of the id of the call."""
    return f"{a + more} {len(call)}"


@langchain_tool
def lc_injected(a: int, state: Annotated[str, InjectedToolArg]) -> str:
    """Take what only agents of LangChain give."""
    return f"{a} {state}"


def pa_add(ctx: RunContext[str], a: int, b: int) -> str:
    """Add two numbers.

    Args:
        ctx: the context.
        a: the first number.
        b: the second number.
    """
    return f"{ctx.deps} {a + b}"


def pa_parts(text: str) -> Any:
    """Return a value beside other things."""
    return ToolReturn(return_value=text.upper(), content="for the model")


def pa_usage(ctx: RunContext[str]) -> str:
    """Ask for what is not there."""
    return str(ctx.usage)


@function_tool
def oa_add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number.
    """
    return a + b


@function_tool
async def oa_says(ctx: RunContextWrapper[str], text: str) -> str:
    """Say a text."""
    return f"{ctx.context} {text}"


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("lc_add", {"a": 2}), ("lc_add", {"a": "x"}), ("lc_fails", {"city": "Rome"}), ("lc_named", {"a": 1}),
    ("pa_add", {"a": 1, "b": 2}), ("pa_parts", {"text": "tea"}), ("pa_usage", {}), ("oa_add", {"a": 1, "b": 2}),
    ("oa_says", {"text": "hello"}),
]  # fmt: skip


class Done(BaseModel):
    results: list[list[Any]] = []


@node
async def call_all(state: Done, ctx: Context) -> Update:
    """Call each tool."""
    found = [(await ctx.tools.execute(name=name, tool_input=args)) for name, args in CALLS]
    return {"results": [[one.output, one.error] for one in found]}


async def main() -> None:
    """Print descriptions, results, and the error about a tool that runs elsewhere."""
    tools = Toolbox(
        tool(lc_add, risk="none", effect="pure"), lc_fails, lc_named,
        *map(PydanticTool, (pa_add, pa_parts, pa_usage)), oa_add, oa_says,
    )  # fmt: skip
    graph = Graph(name="calls", state=Done, nodes={"call": call_all}, edges="START -> call -> END", output="results")
    async with Executor(tools=tools, deps="deps:") as executor:
        run = await executor.start(graph)
    refused = []
    for other in (WebSearchTool(), lc_injected):
        try:
            Toolbox(other)
        except TypeError as error:
            refused.append(str(error))
    about = {one.name: [one.description, one.risk, sorted(one.parameters["properties"])] for one in tools}
    print(json.dumps({"about": about, "results": run.output, "refused": refused}))


if __name__ == "__main__":
    anyio.run(main)
