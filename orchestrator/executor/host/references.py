"""References to the code of a run, as text, where the run continues with other code than it names.

Nothing here, and nothing in a store, imports what they name: the reader of a run decides whether to follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from orchestrator.graph.codec import as_json
from orchestrator.jsontypes import JsonObject
from orchestrator.kernel.run_state import RunState

NameCode: TypeAlias = Callable[[str, str, Mapping[str, object]], "Mapping[str, object] | None"]
"""Names the code of an executor, by (`run.root_id`, name of the graph, references that the run has); None: those."""


class References:
    """Finds the references of the runs of one executor."""

    def __init__(self) -> None:
        self.name_code: NameCode | None = None
        """See `Executor(refs=)`."""

    def new(self, run: RunState) -> JsonObject | None:
        """The references of a run that is taken up, if they change. A run that another one called keeps its own."""
        graph = run.plan.graph
        if graph is None or run.caller is not None:
            return None
        found = self.of(run.root_id, graph.name, run.refs)
        return None if found == run.refs else found

    def of(self, root_id: str, graph: str, has: JsonObject) -> JsonObject:
        """The references of a run.

        Args:
            root_id: the run's id, of a fork that of the run at the root of its forks.
            graph: the name of its graph.
            has: the references that it has.

        Raises:
            InvalidValue: those of the executor cannot be stored.
        """
        found = None if self.name_code is None else self.name_code(root_id, graph, has)
        return has if found is None else dict(as_json(dict(found), "refs", inside=1))
