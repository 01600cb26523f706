"""Let a model choose the tool for the current question."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from orchestrator.context import Context
from orchestrator.graph.model import Node, Port
from orchestrator.nodes.model_decision import decide, question_in_hand, tools_of, unknown_tool
from orchestrator.nodes.templates import fill, filled_by

SYSTEM = """\
You pick the tool that helps most with a question. You get the question and the tools that there are, each as \
"name: what it does". Answer with the name of one of them, exactly as it is written there, and with nothing else."""

PROMPT = """\
Question: {question}

Tools:
{tools}"""


class ChooseTool(Node, kind="choose_tool"):
    """Write the name of a tool for the current question. With only one tool, no model is called.

    Raises:
        AgentError: the reply is not the name of one of the tools.
        GraphUnknown: there are no tools.
    """

    fills = ("tool",)
    asks = "model"

    class State(BaseModel):
        """The fields that the ports name by default."""

        question: str
        """The main question."""
        current: str = ""
        """A follow-up question, if there is one."""
        tool: str = ""
        """The chosen tool's name."""

    system: str = SYSTEM
    """The system message, verbatim."""
    prompt: Annotated[str, filled_by("question", "tools")] = PROMPT
    """The user's message."""
    question: Annotated[str, Port(str)] = "question"
    """Field with the main question."""
    current: Annotated[str | None, Port(str)] = None
    """Field with the follow-up question, which is asked instead if it is not empty."""
    tool: Annotated[str, Port(str)] = "tool"
    """Field that gets the tool's name."""

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "chooses a tool"

    @property
    def needs_tools(self) -> bool:
        """See `Node.needs_tools`."""
        return True

    async def run(self, state: object, ctx: Context) -> dict[str, object]:
        tools = tools_of(ctx, self.kind)
        if len(tools) == 1:
            return {self.tool: tools[0].name}
        question = question_in_hand(state, self.question, self.current)
        # The tools keep the caller's order, which may influence a model.
        offered = [{"name": tool.name, "description": tool.description} for tool in tools]
        lines = "\n".join(f"{tool['name']}: {' '.join(tool['description'].split())}" for tool in offered)
        prompt, data = fill(self.prompt, question=question, tools=lines), {"question": question, "tools": offered}
        chosen = await decide(ctx, task="choose_tool", system=self.system, prompt=prompt, data=data)
        if chosen not in {tool.name for tool in tools}:
            unknown_tool(ctx, chosen, self.kind)
        return {self.tool: chosen}
