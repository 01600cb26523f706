"""The events that a run waits for, with the schemas of their data, and those that no step took."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from orchestrator.graph.given_code import with_inner
from orchestrator.graph.state import fields_form
from orchestrator.kernel.queries import open_questions
from orchestrator.nodes import Wait
from orchestrator.tasks import away
from orchestrator.views.run import explainer_of
from orchestrator.views.untaken_events import mismatch, received_names, unawaited
from orchestrator.web import documents, requests
from orchestrator.web.endpoint import Call

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.kernel.question import Question

_MOST = 100
"""Awaited events, kept events and names that are listed."""


class AwaitedEvent(documents.Document):
    """An event that a step waits for."""

    name: str
    node: str
    path: str
    prompt: Annotated[str, Field(description="What it waits for, in words.")]
    match: Annotated[dict[str, object], Field(description="Values that the data must have.")]
    deadline: Annotated[float | None, Field(description="Unix seconds after which it is too late; null: never.")]
    schema_: Annotated[
        dict[str, object] | None, Field(serialization_alias="schema", description="Of the data; null: unknown.")
    ]


class KeptEvent(documents.Document):
    """An event that the run keeps, because no step took it."""

    seq: Annotated[int, Field(description="The number of its record.")]
    name: str
    ts: Annotated[float, Field(description="When it arrived, Unix seconds.")]
    by: str
    unawaited: Annotated[
        str,
        Field(
            description="That no node waits for it, and what was meant; that its data does not match; or, once the run "
            "has ended, why no step took it. Else empty."
        ),
    ]


class RunEvents(documents.Document):
    """The events of a run that are to come, and those that are kept."""

    run_id: str
    awaited: list[AwaitedEvent]
    kept: Annotated[list[KeptEvent], Field(description="The oldest first, 100 at most.")]
    more_kept: Annotated[int, Field(description="Number of kept events that are left out.")]
    names: Annotated[list[str], Field(description="Names of events that nodes of the graph wait for, now or later.")]


async def listing(call: Call[requests.NoQuery]) -> RunEvents:
    """Return the events that a run waits for and keeps."""
    run = await call.executor.load(call.run_id)
    return await away(lambda: _events(run))


def _events(run: Run) -> RunEvents:
    machine = run.machine
    waits = [one for one in open_questions(machine) if one.kind == "event" and one.event]
    kept = machine.events.kept
    asked = {one.event or "": one for one in reversed(waits)}
    over = {one.seq: one.why for one in explainer_of(run).untaken()} if kept and machine.ended is not None else {}
    return RunEvents(
        run_id=run.run_id,
        awaited=[_awaited(run.definition, one) for one in waits[:_MOST]],
        kept=[
            KeptEvent(
                seq=one.seq,
                name=documents.first_line(one.name),
                ts=one.ts,
                by=documents.first_line(one.by),
                # An event that fits an open wait is taken at once, so one that is kept beside it does not fit.
                unawaited=over.get(one.seq)
                or unawaited(machine, one.name)
                or (mismatch(asked[one.name]) if one.name in asked else ""),
            )
            for one in islice(kept.values(), _MOST)
        ],
        more_kept=max(0, len(kept) - _MOST),
        names=sorted(received_names(machine))[:_MOST],
    )


def _awaited(graph: GraphDefinition, question: Question) -> AwaitedEvent:
    return AwaitedEvent(
        name=question.event or "",
        node=question.node,
        path=question.path,
        prompt=str(documents.blank(question.prompt)),
        match=documents.blank(dict(question.match or {})),
        deadline=question.deadline,
        schema_=next(_schemas(graph, question), None),
    )


def _schemas(graph: GraphDefinition, question: Question) -> Iterator[dict[str, object]]:
    """Yield the schema of the field that gets the data of an event."""
    for one in with_inner([graph]):
        node = one.nodes.get(question.node)
        if isinstance(node, Wait) and node.event == question.event and node.into is not None:
            form = fields_form(one.schema, [node.into], update=True)
            yield documents.blank({**form["properties"][node.into], "$defs": form["$defs"]})
