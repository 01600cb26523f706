"""The code of an application, for workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.executor.executor import Executor
from orchestrator.executor.resources import check_code
from orchestrator.graph.model import GraphDefinition
from orchestrator.models.base import Model
from orchestrator.seals import Seal
from orchestrator.stores import Codec
from orchestrator.stores.base import Store
from orchestrator.tools.collect import ToolsLike


@dataclass(frozen=True)
class App:
    """The code that runs are driven with. `orchestrator worker --app module:attr` names one.

        app = App(graphs=[triage, invoice], model=OpenAIModel("gpt-5"), tools=[lookup])

    Attributes:
        graphs: the graphs whose runs are driven.
        model: the model of nodes that name no model.
        models: named models, by the names that nodes use.
        tools: the tools that nodes may call.
        deps: the value of `ctx.deps` in nodes.
        concurrency, pools: see `Executor`.
        on_change, codec: see `Executor`.

    Raises:
        InvalidValue: an argument has another type.
    """

    graphs: Sequence[GraphDefinition]
    model: Model | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    tools: ToolsLike = ()
    deps: object = None
    concurrency: int | None = None
    pools: Mapping[str, int] | None = None
    on_change: Literal["continue", "strict"] = "continue"
    codec: Codec | None = None

    def __post_init__(self) -> None:
        check_code(graphs=self.graphs, model=self.model, models=self.models, pools=self.pools)

    def executor(
        self,
        store: str | Store = "memory://",
        *,
        lease_ttl: float = 30.0,
        seal: Seal | None = None,
        on_change: Literal["continue", "strict"] | None = None,
        codec: Codec | None = None,
    ) -> Executor:
        """Make an executor with this code.

        Args:
            store: a store, or its URL.
            lease_ttl, seal: see `Executor`.
            on_change, codec: in place of the app's.
        """
        return Executor(
            store, graphs=self.graphs, model=self.model, models=self.models, tools=self.tools, deps=self.deps,
            concurrency=self.concurrency, pools=self.pools, on_change=on_change or self.on_change, lease_ttl=lease_ttl,
            seal=seal, codec=codec or self.codec,
        )  # fmt: skip
