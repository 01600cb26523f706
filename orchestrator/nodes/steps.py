"""One round of an agent that uses tools, as data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from orchestrator.tools.result import ToolResult, as_text
from orchestrator.tools.truncation import SHOWN, cut


def _no(flag: bool) -> bool:
    return not flag


class Step(BaseModel):
    """What was asked, which tool was called for it, and what came of it."""

    model_config = ConfigDict(frozen=True)

    question: str
    tool_choice: str
    """Name of the tool; empty when none could be chosen."""
    tool_args: dict[str, JsonValue] = {}
    tool_exit_code: int = 0
    """0: success; else `tool_output` says what went wrong."""
    tool_output: JsonValue = None
    # Not part of the schema: a state that holds steps has the structure that it always had.
    ended: SkipJsonSchema[bool] = Field(default=False, exclude_if=_no)
    """Whether the call ended the work (`ends=True`): `tool_output` is the answer."""

    @property
    def failed(self) -> bool:
        """Whether `tool_output` is an error."""
        return self.tool_exit_code != 0

    @property
    def text(self) -> str:
        """`tool_output` as a model reads it: a text as it is, anything else as JSON; cut where it is very long."""
        return cut(as_text(self.tool_output), SHOWN)


def output_of(result: ToolResult) -> JsonValue:
    """What a step keeps of a result: its error, or its output; pictures in words."""
    if result.error is not None:
        return result.error
    return result.text if result.content else result.output
