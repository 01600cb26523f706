"""The checks of graphs that passed: the next run of the same graph, with the same tools, passes them too."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.graph.model import GraphDefinition
from orchestrator.tools.tool import Tool
from orchestrator.tools.toolbox import Toolbox


class PassedChecks:
    """What one executor checked before it began runs."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[GraphDefinition, Mapping[str, Tool]]] = {}
        """Name of the check, and content of the graph -> the graph, and the tools that there were."""

    def holds(self, check: str, graph: GraphDefinition, tools: Toolbox) -> bool:
        """Whether a check of a graph passed with the tools that there are now.

        Args:
            check: a name for it.
            graph: the graph. Another one is another graph, although it may look the same.
            tools: the executor's.
        """
        known = self._known.get((check, graph.content))
        return known is not None and known[0] is graph and type(tools) is Toolbox and known[1] is tools.current()

    def forget(self, content: str) -> None:
        """Forget a graph that is gone."""
        for key in [key for key in self._known if key[1] == content]:
            del self._known[key]

    def note(self, check: str, graph: GraphDefinition, tools: Toolbox) -> None:
        """A check passed. Tools that come and go are looked at each time."""
        self._known[check, graph.content] = graph, tools.current()
