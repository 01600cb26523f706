"""Handlers of the editor: the parts of a graph, for a palette and for completion; check, save and try a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.errors import NotSerialisable
from orchestrator.graph.limits import Limits
from orchestrator.graph.model import GraphDefinition, Node, tool_ref
from orchestrator.graph.reading import GRAPH_KEYS, node_from_data
from orchestrator.graph.reducers import BUILTIN
from orchestrator.graph.refs import resolve, strategies
from orchestrator.graph.state import FIELD_KEYS, STATE_KEYS
from orchestrator.graph.text.types import SHIPPED_TYPES, TYPE_NAMES
from orchestrator.graph.topology import ANY, END, IF_NAMED, START, STOP
from orchestrator.graph.writing import node_text, to_plain_yaml, to_yaml
from orchestrator.graph_class import Graph
from orchestrator.nodes.catalog import (
    Category,
    FieldFacts,
    category,
    chosen_outcomes,
    common_fields,
    kinds,
    own_fields,
    sample,
    summary,
)
from orchestrator.tasks import away
from orchestrator.tools.tool import Tool
from orchestrator.web.compose import checks
from orchestrator.web.compose.checks import CheckDocument
from orchestrator.web.compose.saved import SUFFIX
from orchestrator.web.documents import Document, RunResult, blank, result_of
from orchestrator.web.endpoint import RISKS, Call
from orchestrator.web.problems import HttpProblem
from orchestrator.web.requests import Body, Labels, LimitChanges, Name, NoQuery
from orchestrator.web.settings import Risk

_LONGEST = 500
"""Longest description of a tool, in characters: third-party servers may send any length."""


GraphText = Annotated[
    str,
    # Not a constraint: the checks have the words for a text that is too long.
    Field(description="The text of a graph file.", json_schema_extra={"maxLength": checks.LONGEST}),
]


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
    fields: Annotated[list[KindField], Field(description="Fields in addition to those of every kind.")]
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
    """A graph that comes with the library, as a starting point."""

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
    risks: Annotated[list[str], Field(description="Risks that `approve` of a start or a try may name here.")]
    joins: list[str]
    words: Annotated[
        dict[str, dict[str, str]],
        Field(
            description="The keys of a text by their place: `graph`, `state`, `field`, `limits`, `edges`; and the "
            "`types` and `reducers` of fields. Each with what it is for."
        ),
    ]
    strategies: list[StrategyRow]


class SavedDocument(Document):
    """A graph that was saved."""

    name: str
    digest: Annotated[str, Field(description="`replaces` of the next save.")]
    file: Annotated[str, Field(description="The name of the file in the folder of the server.")]


class TextBody(Body):
    """The text of a graph file."""

    text: GraphText
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

    name: Name = Field(
        description="The name of the graph, as the text says it: the file is NAME.yaml.",
        json_schema_extra={"pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,99}$"},
    )
    text: GraphText
    replaces: Name | None = Field(None, description="The digest of the file that it replaces; null: there is none.")


async def listing(call: Call[NoQuery]) -> KindList:
    """Return the kinds of nodes, the tools, models and words that a text may use on this server."""
    executor = call.executor
    tools = [_tool(tool) for tool in executor.tools.tools] if executor.tools.ready else []
    default = None if executor.model is None else executor.model.name
    cap = call.settings.approve
    risks = [] if cap is None else [*RISKS[: RISKS.index(cap) + 1]]
    fixed = await away(_fixed)
    return fixed.model_copy(
        update={"tools": tools, "models": sorted(executor.models), "default_model": default, "risks": risks}
    )


def _tool(tool: Tool) -> ToolRow:
    description = str(blank(tool.description))
    if len(description) > _LONGEST:
        description = f"{description[: _LONGEST - 1]}…"
    return ToolRow(name=tool.name, description=description, risk=tool.risk, effect=tool.effect, ref=tool_ref(tool))


@cache
def _fixed() -> KindList:
    """Return the parts that are the same for all servers."""
    rows = [
        KindRow(
            name=kind,
            summary=summary(cls),
            category=category(cls),
            fields=[_field(one) for one in own_fields(cls)],
            outcomes=None if chosen_outcomes(cls) else list(_outcomes(cls)),
            example=node_text(sample(cls)),
            node=dict(sample(cls)),
        )
        for kind, cls in kinds().items()
    ]
    return KindList(
        kinds=rows,
        common=[_field(one) for one in common_fields()],
        tools=[],
        models=[],
        default_model=None,
        risks=[],
        joins=["all", "each"],
        words={place: dict(words) for place, words in _words().items()},
        strategies=[*_strategies()],
    )


def _field(facts: FieldFacts) -> KindField:
    return KindField(
        name=facts.name,
        required=facts.required,
        type=facts.type,
        default="" if facts.required else facts.default,
        port=facts.port,
        summary=facts.meaning,
    )


def _outcomes(cls: type[Node]) -> tuple[str, ...]:
    return node_from_data(sample(cls), strict=True).outcomes


def _words() -> Mapping[str, Mapping[str, str]]:
    said = dict(re.findall(r"^ {8}(\w+): ((?:.+\n(?: {12}.+\n)*))", Graph.__doc__ or "", re.M))
    return {
        "graph": {key: " ".join(said.get(key, "").split()) for key in GRAPH_KEYS},
        "state": STATE_KEYS,
        "field": FIELD_KEYS,
        "types": dict.fromkeys((*TYPE_NAMES, *SHIPPED_TYPES), ""),
        "reducers": dict.fromkeys((*BUILTIN, "local"), ""),
        "limits": dict.fromkeys(Limits.model_fields, ""),
        "edges": {
            START: "where runs begin",
            END: "where a branch ends",
            STOP: "where a run ends",
            ANY: "every node",
            "each": "a branch for each item of a list",
            **dict.fromkeys(IF_NAMED, "only if an edge names it"),
        },
    }


def _strategies() -> Iterator[StrategyRow]:
    for name in strategies():
        graph = resolve(f"graphs.{name}:graph")
        assert isinstance(graph, GraphDefinition)
        yield StrategyRow(name=name, summary=graph.description, yaml=_text(graph))


def _text(graph: GraphDefinition) -> str:
    """Return the graph as a text to edit, with its state written out if possible."""
    try:
        return to_plain_yaml(graph)
    except NotSerialisable:
        return to_yaml(graph)


async def check(call: Call[NoQuery, CheckBody]) -> CheckDocument:
    """Check the text of a graph. It can only use code that the server was given."""
    body, texts = call.body, call.service.texts
    return await texts.away(
        lambda: checks.check(body.text, body.format, texts.code, texts.tools, draw=body.draw, prove=body.prove)
    )


async def save(call: Call[NoQuery, SaveBody]) -> SavedDocument:
    """Write a text into the folder of the server, and make its graph one of the server."""
    body, saved = call.body, call.service.saved
    if saved is None:
        detail = "this server saves no graphs: start it with --save-graphs DIR, or download the text"
        raise HttpProblem(409, "save-off", detail)
    await call.check_new(None, body.name, {})
    found = await call.service.texts.away(lambda: saved.save(body.name, body.text, body.replaces))
    saved.settle()
    return SavedDocument(name=body.name, digest=found.digest, file=f"{body.name}{SUFFIX}")


async def start_try(call: Call[NoQuery, TryBody]) -> RunResult:
    """Run the graph of a text; with `wait`, return when the run ends or pauses, or after a time limit."""
    body, texts, scratch = call.body, call.service.texts, call.service.scratch
    assert scratch is not None
    if body.wait:
        call.service.streams.check()
    approve = call.risk(body.approve)
    graph = await texts.away(lambda: checks.sound(body.text, body.format, texts.code))
    await call.check_new(None, graph.name, body.labels)
    run = await scratch.start(
        graph,
        body.input,
        model=body.model,
        limits=None if body.limits is None else body.limits.limits(),
        approve=approve,
        labels=body.labels,
        principal=call.principal,
    )
    if body.wait:
        async with call.waiting():
            return await result_of(await scratch.executor.wait(run.run_id))
    return await result_of(run)
