"""Requests and answers about texts of graphs, as models that describe them in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.graph.report import Claim, Verdict
from orchestrator.nodes.catalog import Category
from orchestrator.web.documents import Document
from orchestrator.web.requests import Body, Labels, LimitChanges, Name
from orchestrator.web.settings import Risk


class KindField(Document):
    """A field of a kind of node."""

    name: str
    required: bool
    type: str
    default: str
    port: Annotated[str, Field(description="`reads` or `writes` if it names a state field, with its type; else empty.")]
    summary: str


class KindRow(Document):
    """A kind of node."""

    name: str
    summary: str
    category: Category
    fields: Annotated[list[KindField], Field(description="Those beside the fields of every kind.")]
    outcomes: Annotated[list[str] | None, Field(description="null: the node's fields decide.")]
    example: Annotated[str, Field(description="A node of it with what it must have, as YAML, without its name.")]
    node: Annotated[dict[str, object], Field(description="The same node as data.")]


class ToolRow(Document):
    """A tool that nodes may name."""

    name: str
    description: str
    risk: str
    effect: str
    ref: Annotated[str | None, Field(description="`module:attr` by which a text may name it; null: by its name only.")]


class StrategyRow(Document):
    """A graph that comes with the library, to begin with."""

    name: str
    summary: str
    yaml: str


class KindList(Document):
    """The parts of a graph's text."""

    kinds: list[KindRow]
    common: Annotated[list[KindField], Field(description="The fields of every kind.")]
    tools: list[ToolRow]
    models: Annotated[list[str], Field(description="The names of models that nodes may use.")]
    default_model: Annotated[str | None, Field(description="The model of nodes that name none; null: there is none.")]
    joins: list[str]
    words: Annotated[
        dict[str, dict[str, str]],
        Field(
            description="The keys of a text by their place: `graph`, `state`, `field`, `limits`, `edges`; and the "
            "`types` and `reducers` of fields. Each with what it is for."
        ),
    ]
    strategies: list[StrategyRow]


class GraphProblem(Document):
    """A problem of a text."""

    code: str
    message: str
    line: Annotated[int, Field(description="From 1; 0: no single line.")]
    column: Annotated[int, Field(description="From 1; 0: not known.")]
    nodes: list[str]
    edges: list[str]


class CheckedNode(Document):
    """A node of a text, as far as the text can be read."""

    name: Annotated[str, Field(description="Inside of subgraphs with the names of the nodes around it, `outer/inner`.")]
    kind: str
    first: Annotated[int, Field(description="Its first line, from 1; 0: not known.")]
    last: int
    outcomes: Annotated[list[str] | None, Field(description="null: not known.")]
    next: Annotated[list[str], Field(description="Where its edges lead, in their order, each once.")]


class CheckedEdge(Document):
    """An edge of a text."""

    source: str
    target: str
    outcome: str | None
    each: Annotated[str | None, Field(description="The field of its map; null: it is none.")]
    line: Annotated[int, Field(description="The line of its statement, from 1; 0: not known.")]


class CheckedField(Document):
    """A field of the state."""

    name: str
    type: Annotated[str, Field(description="Empty: not known.")]
    required: bool
    reducer: str


class WitnessDocument(Document):
    """A step of a path that breaks a claim."""

    node: str
    outcome: str
    note: str


class ProofDocument(Document):
    """A claim about all runs of a graph."""

    about: Claim
    claim: str
    verdict: Verdict
    reason: str
    tool: Annotated[str, Field(description="The tool whose graph it is about; empty: the graph itself.")]
    witness: list[WitnessDocument]
    beside: Annotated[list[WitnessDocument], Field(description="The path of a second branch, if it takes two.")]


class CheckDocument(Document):
    """Result of the check of a text."""

    graph: str | None
    ok: bool
    problems: Annotated[list[GraphProblem], Field(description="In the order of their lines, 200 at most.")]
    more_problems: Annotated[int, Field(description="How many problems are left out.")]
    notes: list[str]
    skipped: Annotated[list[str], Field(description="What only code could tell that this server was not given.")]
    nodes: Annotated[list[CheckedNode], Field(description="In the order of the text.")]
    edges: Annotated[list[CheckedEdge], Field(description="Those outside of subgraphs, 5,000 at most.")]
    fields: Annotated[list[CheckedField], Field(description="The fields of the state.")]
    input: Annotated[list[str], Field(description="The fields that an input sets; empty: all.")]
    proofs: Annotated[list[ProofDocument], Field(description="With `prove`, of a graph without problems.")]
    form: Annotated[
        dict[str, object] | None, Field(description="JSON Schema of what a run starts with; null: there are problems.")
    ]
    drawing: Annotated[str | None, Field(description="SVG, with `draw`; null: there are problems, or it is too large.")]


class SavedDocument(Document):
    """A graph that was saved."""

    name: str
    digest: Annotated[str, Field(description="`replaces` of the next save.")]
    file: Annotated[str, Field(description="The name of the file in the folder of the server.")]


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
