"""How runs move to a version of their graph that they do not fit: what a user decides, or the graph declares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestrator.errors import InvalidMigration
from orchestrator.graph.names import plain_name

Values: TypeAlias = Mapping[str, Any]
"""A whole state, as plain JSON."""
StateFunction: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
StateMapping: TypeAlias = Mapping[str, "str | Callable[[dict[str, Any]], Any]"]


@dataclass(frozen=True)
class Migration:
    """How a run moves to another version of its graph: `executor.resume(run_id, migrate=Migration(...))`.

    A graph can declare those of its earlier versions: `Graph(..., migrations=[Migration(...)])`. Runs that do not fit
    the graph then continue by the first one that they fit.

    Nodes and fields inside a subgraph are named by their path: `{"draft/ask": "draft/confirm"}`. Whatever is not named
    stays as it is. The whole migration is checked before anything is journaled.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Old name of a node -> its new name. A token at the old node continues at the new one, and what the old node asked
    is asked again."""
    state: StateFunction | StateMapping | None = None
    """Values of the new state. A mapping names, for a field of the new state, the old field that its value comes from
    (the same name keeps a value whose type changed, if it fits), or a function of the old state. A function alone
    returns the values of fields; other fields keep theirs. The old state is plain JSON; new values are validated."""
    joins: Mapping[str, str | None] = field(default_factory=dict)
    """Join of a fork that is open -> the join that takes its place; None: the branches end without it."""
    drop: Collection[str] = ()
    """Fields whose values are given up: those that are gone, and those that begin with the default of their new
    type."""
    accept: bool = False
    """Whether changes ahead of the run are accepted, too, but for lost proofs. What a node asked then stays open, and
    an approval counts, if the node, and the nodes that its approval leads to, are the same but for their content."""
    forks: Mapping[str, str] = field(default_factory=dict)
    """Node that branches under way forked at -> the node that forks in its place. Its tokens go where `nodes` says."""

    def __post_init__(self) -> None:
        if isinstance(self.drop, str):
            raise InvalidMigration(f"drop is a collection of names: write drop=[{self.drop!r}]")
        for what, mapping in (("nodes", self.nodes), ("forks", self.forks), ("joins", self.joins)):
            if not isinstance(mapping, Mapping):
                raise InvalidMigration(f"{what} maps old names to new ones, and this is a {type(mapping).__name__}")
            named = {old: new if new is None else plain_name(new) for old, new in mapping.items()}
            object.__setattr__(self, what, named)
        if self.state is not None and not callable(self.state) and not isinstance(self.state, Mapping):
            raise InvalidMigration(f"state is a function or a mapping, and this is a {type(self.state).__name__}")


NO_MIGRATION = Migration()
