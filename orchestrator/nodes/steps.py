"""One round of an agent with tools, as data."""

from __future__ import annotations

from collections.abc import Sequence
from operator import not_

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from orchestrator.tools.result import SHOWN, ToolResult, as_text, cut


class Step(BaseModel):
    """A question, the tool that was called for it, and the result."""

    model_config = ConfigDict(frozen=True)

    question: str
    tool_choice: str
    """Name of the tool; empty if none could be chosen."""
    tool_args: dict[str, JsonValue] = {}
    tool_exit_code: int = 0
    """0 for success; any other value means that `tool_output` is an error."""
    tool_output: JsonValue = None
    # Not part of the schema, so that states with steps keep their structure digest.
    ended: SkipJsonSchema[bool] = Field(default=False, exclude_if=not_)
    """True if the call ended the work (`ends=True`): `tool_output` is the answer."""

    @property
    def failed(self) -> bool:
        """True if `tool_output` is an error."""
        return self.tool_exit_code != 0

    @property
    def text(self) -> str:
        """`tool_output` as a model reads it: text unchanged, anything else as JSON; shortened if it is very long."""
        return cut(as_text(self.tool_output), SHOWN)


def answer_of_steps(steps: Sequence[Step]) -> str:
    """Return the output of the last step, which ended the work; if it is empty, the latest earlier output."""
    outputs = (step.tool_output for step in reversed(steps) if not step.failed)
    return next((as_text(output) for output in outputs if output is not None and as_text(output).strip()), "")


def step_of(question: str, tool: str, args: dict[str, JsonValue], result: ToolResult) -> Step:
    """Return the step of a call, with the error or the output of its result; pictures are described in words."""
    output: JsonValue = result.output
    if result.failed and (result.error is not None or output in (None, "")):
        output = result.fault
    elif result.content:
        output = result.text
    return Step(
        question=question,
        tool_choice=tool,
        tool_args=args,
        tool_exit_code=result.exit_code or int(result.failed),
        tool_output=output,
        ended=result.ended,
    )
