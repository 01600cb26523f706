"""The code that an executor was given."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.executor.host.host import Host
from orchestrator.graph.definition import GraphDefinition
from orchestrator.models.base import Model
from orchestrator.tools.toolbox import Toolbox


class ExecutorCode:
    """The graphs, tools and models of an executor."""

    _host: Host

    @property
    def graphs(self) -> Mapping[str, GraphDefinition]:
        """The graphs that the executor has, by name: of several versions the newest."""
        return MappingProxyType(self._host.resources.graphs)

    @property
    def tools(self) -> Toolbox:
        """The tools that nodes may call; those of servers are known while the executor is open."""
        return self._host.resources.tools

    @property
    def model(self) -> Model | None:
        """The model of nodes that name no model."""
        return self._host.resources.model

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by the names that nodes use."""
        return MappingProxyType(dict(self._host.resources.models))
