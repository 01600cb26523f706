"""A graph as a node of another graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, SkipValidation, field_validator

from orchestrator.errors import GraphUnknown
from orchestrator.graph.model import ITEM, GraphDefinition, Node, Port
from orchestrator.graph.outcome import DONE

_EXAMPLE = {
    "name": "inner",
    "state": {"fields": {"question": "str", "reply": {"type": "str", "default": ""}}},
    "nodes": {"write": {"kind": "complete"}},
    "edges": "START -> write -> END",
}


class Subgraph(Node, kind="subgraph"):
    """Run a graph as a node: in the same journal, under this node's path, with its own forks, joins and limits.

    Both mappings read like assignments, target first. `inputs={"query": ITEM, "lang": "language"}` sets the inner
    fields `query` and `lang`. `outputs={"notes": "findings"}` updates the outer field `notes` with the inner
    `findings`. Inner fields that `inputs` does not name start with their defaults.

    `outcomes=("approved", "denied")` names outcomes of the inner graph: the node takes the one by which the inner
    graph's END, or STOP, was entered. If branches entered END by several of them, it takes the one that `outcomes=`
    names first. `done` among them covers all others. Without `outcomes=`, the outcome is always `done`.

    `timeout=` is the number of seconds that the inner graph may take: from its start, over all its steps, nested graphs
    and inner retries, to its end. After that it is stopped, its questions are withdrawn, its updates are dropped, and
    the outcome is `timeout` if an edge names it, else the failure `StepTimeout`. Time in which the whole run is
    inactive does not count: while it is paused, interrupted, or only waits for answers. Time in which the inner graph
    waits for an answer while other steps of the run work does count. A retry of the subgraph has the full time again.
    After a crash, time continues from the last record of the dead process.
    """

    look = "graph"

    model_config = ConfigDict(validate_by_name=True)

    outcomes_field = "entered"
    fills = ("outputs",)

    graph: Annotated[SkipValidation[GraphDefinition], Field(examples=[_EXAMPLE])]
    """The graph inside; a file may also name it as `module:attr`."""
    inputs: Annotated[Mapping[str, str], Field(examples=[{"question": "question"}])] = {}
    """Inner field -> the outer field that sets it, or `ITEM`, the map item that the node runs for."""
    outputs: Annotated[Mapping[str, str], Field(examples=[{"answer": "reply"}])] = {}
    """Outer field -> the inner field whose last value updates it."""
    entered: tuple[str, ...] = Field(default=(), alias="outcomes")
    """Outcomes by which the inner graph's END is entered, and which the node takes; given as `outcomes=`."""

    def __init__(self, graph: GraphDefinition | None = None, /, **fields: Any) -> None:
        """
        Args:
            graph: the inner graph, also accepted as a keyword.
            fields: the fields of the node, such as `inputs` and `outputs`.
        """
        super().__init__(**fields if graph is None else {"graph": graph, **fields})

    @field_validator("entered")
    @classmethod
    def _check_entered(cls, entered: tuple[str, ...]) -> tuple[str, ...]:
        return () if entered == (DONE,) else entered

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "runs a graph"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return self.entered or (DONE,)

    @property
    def subgraph(self) -> GraphDefinition:
        return self.graph

    def ports(self) -> dict[str, str]:
        taken = {f"inputs[{inner}]": ours for inner, ours in self.inputs.items() if ours != ITEM}
        return taken | {f"outputs[{ours}]": ours for ours in self.outputs}

    @classmethod
    def port_types(cls) -> dict[str, Port]:
        return {"inputs": Port(), "outputs": Port()}

    def inner_input(self, state: object, item: object) -> dict[str, object]:
        """Return the input of the inner graph.

        Args:
            state: the state of the outer graph.
            the map item that the node runs for.

        Returns:
            The values by field of the inner graph.
        """
        return {inner: item if ours == ITEM else getattr(state, ours) for inner, ours in self.inputs.items()}

    def outer_update(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the update of the outer graph.

        Args:
            values: the last values of the inner graph.

        Returns:
            The update, by field of the outer graph.
        """
        return {ours: values[inner] for ours, inner in self.outputs.items()}

    def outer_outcome(self, entered: Collection[str]) -> str | None:
        """Return the outcome that the node takes.

        Args:
            entered: the outcomes by which the inner graph's END was entered.

        Returns:
            The first of the node's outcomes that is among them; else `done`, if the node has it, else None.
        """
        others = DONE in self.outcomes and not all(outcome in self.outcomes for outcome in entered)
        found = {*entered, DONE} if others else entered
        return next((one for one in self.outcomes if one in found), DONE if DONE in self.outcomes else None)

    async def run(self, state: object, ctx: object) -> object:
        """See `Node.run`. Never called by an executor, which runs the inner graph instead.

        Raises:
            GraphUnknown: always.
        """
        raise GraphUnknown(f"subgraph {self.graph.name!r} cannot be called as a function: run it by an Executor")
