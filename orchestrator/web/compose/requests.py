"""What requests about texts of graphs say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.web.requests import Body, Labels, LimitChanges, Name
from orchestrator.web.settings import Risk


class TextBody(Body):
    """The text of a graph file."""

    text: str = Field(description="The text of the file.")
    format: Literal["yaml", "json"] = "yaml"


class CheckBody(TextBody):
    """A text to check."""

    draw: bool = Field(False, description="Also draw the graph.")
    prove: bool = Field(False, description="Also prove claims about all runs of the graph.")


class TryBody(TextBody):
    """A text to try."""

    input: object = Field(
        None, description="The value of the graph's input field, or an object of the fields of its input."
    )
    model: Name | None = Field(
        None,
        description="The model of nodes that name none: a name, or `default`; null: all ask the offline one.",
    )
    limits: LimitChanges | None = Field(None, description="Lower limits than those of tries.")
    approve: Risk | None = Field(
        None, description="Approve calls of tools up to this risk without asking; the server caps it."
    )
    labels: Labels = Field(default_factory=dict)
    wait: bool = Field(False, description="Answer when the run ends or pauses, or after a minute.")


class SaveBody(Body):
    """A text to save as a file."""

    name: Name = Field(description="The name of the graph, as the text says it: the file is NAME.yaml.")
    text: str = Field(description="The text of the file, YAML.")
    replaces: Name | None = Field(None, description="The digest of the file that it replaces; null: there is none.")
