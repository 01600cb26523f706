"""References of a run to its graph, tools and models. They are stored with the run, and resolved again to resume it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import Struct

from orchestrator.cli import trust
from orchestrator.cli.environment import import_for
from orchestrator.cli.exits import UsageError
from orchestrator.cli.graph_refs import absolute, admitted, graph_from_ref, importing
from orchestrator.cli.output import quoted, warn
from orchestrator.graph.model import is_shipped
from orchestrator.models.refs import VENDORS, model_from_ref
from orchestrator.tools import Toolbox, tools_from_ref
from orchestrator.tools.refs import builtin_groups
from orchestrator.visible import line

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition
    from orchestrator.graph_class import Graph
    from orchestrator.json import Json
    from orchestrator.models import Model

_NAMED_MODEL = re.compile(r"([^\W\d](?:[\w-]|[^\x00-\x7f])*)=(.+)", re.DOTALL)
DEFAULT_TOOLS = ("arithmetic",)
OFFLINE = "offline"


class Code(Struct, frozen=True):
    """The graph, tools and models that references were resolved to."""

    graph: Graph
    tools: Toolbox
    model: Model
    models: Mapping[str, Model]
    """Models by the names that nodes use."""
    launch: Launch
    """The references."""


def _asks_default(graph: GraphDefinition) -> bool:
    """Return True if a node may use the default model. Nodes of a user's kind may, unless they declare their models."""

    for node in graph.nodes.values():
        asks = node.asks_model or (node.asks is None and not is_shipped(type(node)))
        if (asks and node.model is None) or (node.subgraph is not None and _asks_default(node.subgraph)):
            return True
    return False


@dataclass(frozen=True)
class Launch:
    """References, and the directory in which they are resolved."""

    graph: str
    tools: tuple[str, ...]
    model: str
    directory: str
    trust: tuple[str, ...] = ()
    """Modules whose code a graph file may name."""
    models: tuple[tuple[str, str], ...] = ()
    """Names that nodes use, and references of the models for them, sorted by name."""
    by_default: bool = field(default=False, compare=False)
    """True if no model was named; a warning is then printed."""

    def load(self) -> Code:
        """Import the referenced code.

        Raises:
            GraphUnknown: a reference is unknown; the message lists the known ones.
            InvalidGraph: the graph's checks found problems.
            UsageError: a module cannot be imported.
        """
        code = Code(
            graph_from_ref(self.graph, self.directory, self.trust),
            load_tools(self.tools, self.directory),
            load_model(self.model, self.directory),
            {name: load_model(ref, self.directory) for name, ref in self.models},
            self,
        )
        if self.by_default and _asks_default(code.graph):
            warn(f"model: {self.model}, which only does arithmetic; choose another with --model or ORCHESTRATOR_MODEL")
        return code

    def admitted(self) -> Launch:
        """Ask about untrusted code that the graph file names; return the references with the answer.

        Raises:
            UsageError: the user refused, or cannot be asked.
        """
        return replace(self, trust=admitted(self.graph, self.trust))

    def quiet(self) -> Launch:
        """Return the same references, without the warning about the default model."""
        return replace(self, by_default=False)

    def refs(self) -> dict[str, Json]:
        """Return the references as plain JSON, for the run's first record."""
        trusted: dict[str, Json] = {"trust": list(self.trust)} if self.trust else {}
        named: dict[str, Json] = {"models": dict(self.models)} if self.models else {}
        return {
            "graph": self.graph,
            "tools": list(self.tools),
            "model": self.model,
            "directory": self.directory,
            **named,
            **trusted,
        }

    def is_of(self, refs: Mapping[str, object]) -> bool:
        """Return True if a run that recorded these references resolves to the same code."""
        stored = _stored(refs)
        same = (self.graph, self.tools, self.model) == (stored.graph, stored.tools, stored.model)
        return same and self.models == stored.models and set(self.trust) <= set(stored.trust)

    def is_found(self, root_id: str, refs: Mapping[str, object], url: str) -> bool:
        """Return True if a command without code options resolves to the same code, by the run's trusted references.

        Args:
            root_id: see `Run.root_id`.
            refs: the run's references.
            url: the store.
        """
        return trust.trusted(root_id, refs, url) and self.is_of(refs)

    def options(self) -> tuple[str, ...]:
        """Return the settings as options of a command that continues the run."""
        tools = [word for ref in self.tools for word in ("--tools", ref)]
        trusted = [word for module in self.trust for word in ("--trust", module)]
        named = [word for name, ref in self.models for word in ("--model", f"{name}={ref}")]
        model = ("--model", self.model) if self.model else ()
        return ("--graph", self.graph, *tools, *model, *named, *trusted)


class Given(Struct, frozen=True):
    """`--graph`, `--tools`, `--model` and `--trust` as they were typed."""

    graph: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None
    trust: tuple[str, ...] = ()
    models: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        graph: str | None,
        tools: Sequence[str] | None,
        models: Sequence[str] | None,
        trust: Sequence[str] | None = None,
    ) -> Given:
        """Return the values of a command's options."""
        named = named_models(models or ())
        return cls(
            absolute(graph) if graph is not None else None,
            tuple(absolute(ref) for ref in tools or ()),
            named.pop(None, None),
            tuple(trust or ()),
            tuple(sorted((name, ref) for name, ref in named.items() if name is not None)),
        )

    def new(self) -> Launch:
        """Return references for a new run, or one that recorded none: defaults replace missing options."""
        assert self.graph is not None
        model = self.model or default_model()
        tools = self.tools or DEFAULT_TOOLS
        launch = Launch(
            self.graph, tools, model or OFFLINE, os.getcwd(), self.trust, self.models, by_default=model is None
        )
        return launch.admitted()

    def over(self, stored: Launch) -> Launch:
        """Return references for a run whose own may be used: typed options take precedence."""
        return replace(
            stored,
            graph=self.graph or stored.graph,
            tools=self.tools or stored.tools,
            model=self.model or stored.model,
            trust=(*stored.trust, *self.trust),
            models=tuple(sorted({**dict(stored.models), **dict(self.models)}.items())),
        )


def named_models(given: Sequence[str]) -> dict[str | None, str]:
    """Return `--model` as names and references; the name None is for nodes that name no model.

    Raises:
        UsageError: a name occurs twice.
    """
    found: dict[str | None, str] = {}
    for one in given:
        match = _NAMED_MODEL.fullmatch(one)
        name, ref = (match[1], match[2]) if match is not None else (None, one)
        if name in found:
            raise UsageError(f"--model {one}: {'the default model' if name is None else repr(name)} is given twice")
        found[name] = absolute(ref)
    return found


def default_model() -> str | None:
    """Return `ORCHESTRATOR_MODEL`, if it is set. The presence of a key never selects a model."""
    model = os.environ.get("ORCHESTRATOR_MODEL")
    return absolute(model) if model else None


def of_run(
    run_id: str, root_id: str, refs: Mapping[str, object], url: str, given: Given, *, command: str = ""
) -> Launch:
    """Return the references to continue a run.

    Args:
        run_id: the run.
        root_id: the run whose first record contains the references; see `Run.root_id`.
        refs: its references.
        url: the store.
        given: the typed options.
        command: a command with the missing options, if the current one lacks them.

    Raises:
        UsageError: the run's own references may not be used, and required options are missing.
    """
    if trust.trusted(root_id, refs, url):
        return given.over(_stored(refs))
    missing = [
        f"--{name}"
        for name, value in (("graph", given.graph), ("tools", given.tools), ("model", given.model))
        if not value and (name == "graph" or refs.get(name))
    ]
    named = refs.get("models")
    known = dict(given.models)
    if known and "--model" in missing:
        missing[missing.index("--model")] = "--model REF without a name"
    missing += [f"--model {name}=REF" for name in (named if isinstance(named, dict) else ()) if name not in known]
    if not missing:
        return given.new()
    listed = ", ".join(missing)
    raise UsageError(
        f"run {run_id!r} was not started by your command line in this store, so its references are "
        f"not followed: {f'use `{command}` with {listed}' if command else f'add {listed}'}{_hint(refs)}"
    )


def _stored(refs: Mapping[str, object]) -> Launch:
    tools = refs.get("tools")
    modules, named = refs.get("trust"), refs.get("models")
    return Launch(
        str(refs.get("graph")),
        tuple(str(ref) for ref in tools) if isinstance(tools, list) else (),
        str(refs.get("model") or ""),  # a program may not have recorded any
        str(refs.get("directory")),
        tuple(str(name) for name in modules) if isinstance(modules, list) else (),
        tuple(sorted((str(name), str(ref)) for name, ref in named.items())) if isinstance(named, dict) else (),
    )


def _hint(refs: Mapping[str, object]) -> str:
    if not isinstance(refs.get("graph"), str):
        return ""
    if "directory" not in refs and ":" not in str(refs["graph"]):  # a program stores names, not files
        return f". A Python program started it. For --graph, name the file with its graph {refs['graph']!r}: FILE.py"
    said = quoted(_stored(refs).options())
    return f". It refers to the following; check this before you use it:\n  {line(said)}"


def load_tools(refs: Sequence[str], directory: str | None = None) -> Toolbox:
    """Return the tools of all references, in order.

    Raises:
        GraphUnknown: a reference does not name a tool.
        UsageError: a module cannot be imported, or two tools have the same name.
    """

    found: list[Toolbox] = []
    for ref in dict.fromkeys(refs):
        if not ref:
            raise UsageError("--tools is empty: name a group, module, module:attr or file.py:attr")
        if not ref.startswith("mcp:") and ref.partition(":")[0] not in builtin_groups():
            import_for(ref, directory or os.getcwd())
        with importing(f"tools {ref}"):
            found.append(tools_from_ref(ref, directory))
    try:
        return Toolbox(*found)
    except ValueError as error:
        raise UsageError(f"--tools {' --tools '.join(refs)}: {error}") from None


def load_model(ref: str, directory: str | None = None) -> Model:
    """Return the model of a reference; `directory`: searched for a module that is not installed."""

    if ":" in ref and ref.partition(":")[0] not in VENDORS:
        import_for(ref, directory or os.getcwd())
    with importing(f"model {ref}", "made"):
        return model_from_ref(ref)
