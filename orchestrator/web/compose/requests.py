"""What requests about texts of graphs say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.web.requests import Body


class TextBody(Body):
    """The text of a graph file."""

    text: str = Field(description="The text of the file.")
    format: Literal["yaml", "json"] = "yaml"


class CheckBody(TextBody):
    """A text to check."""

    draw: bool = Field(False, description="Also draw the graph.")
    prove: bool = Field(False, description="Also prove claims about all runs of the graph.")
