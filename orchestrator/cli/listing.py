"""Commands that list what comes with the library, or with a module: graphs, tools."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.exits import COMPLETED, INTERRUPTED, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.tools import Tool, Toolbox


def graphs(json: options.Json = False, store: options.Store = None) -> int:
    """List the graphs that come with the library.

    Example: orchestrator graphs
    """
    from orchestrator.cli.graphrefs import graph_from_ref, shipped
    from orchestrator.cli.output import out_json, out_table
    from orchestrator.render.terminal.tables import Column

    found = {name: graph_from_ref(name) for name in shipped()}
    if json:
        out_json([{"name": name, "description": graph.description} for name, graph in found.items()])
        return COMPLETED
    out_table(
        (Column("graph"), Column("what it does", least=24)),
        [(name, graph.description) for name, graph in found.items()],
    )
    return COMPLETED


def tools(
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="REF", help="A built-in group or tool, module, module:attr or file.py:attr.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
) -> int:
    """List tools: their arguments, risk and effect.

    Without REF, lists all built-in tools. For a single tool, and with --json, shows the whole schema.

    Example: orchestrator tools view_file
    """
    from orchestrator.cli.interrupts import Interrupted
    from orchestrator.cli.output import out, out_json, out_made
    from orchestrator.render.terminal.tables import tool_table, whole

    try:
        groups = _groups_of(ref)
    except Interrupted:
        return INTERRUPTED
    if json:
        names = ("name", "description", "parameters", "risk", "effect")
        out_json([{"group": group, **{n: getattr(t, n) for n in names}} for group, ts in groups.items() for t in ts])
        return COMPLETED
    out_made(partial(tool_table, groups))
    if ref is not None and len(those := [one for found in groups.values() for one in found]) == 1:
        out(whole(those[0]))
    return COMPLETED


def _groups_of(ref: str | None) -> dict[str, Sequence[Tool]]:
    """The tools of a reference by its name; all built-in ones without it, by their groups."""
    from orchestrator.cli.launch import load_tools
    from orchestrator.cli.output import warn
    from orchestrator.tools.refs import builtin_groups

    shipped = builtin_groups()
    if ref is not None and (not ref.isidentifier() or ref in shipped):
        return {ref: known_tools(load_tools([ref]))}
    groups: dict[str, Sequence[Tool]] = {}
    for name in shipped:
        try:
            groups[name] = known_tools(load_tools([name]))
        except UsageError as error:  # a group needs a package that is not installed
            if ref is None:
                warn(str(error))
    if ref is None:
        return groups
    # The name of one built-in tool, before that of a module, which may stand in the current directory.
    found: dict[str, Sequence[Tool]] = {
        name: one for name, those in groups.items() if (one := [t for t in those if t.name == ref])
    }
    return found or {ref: known_tools(load_tools([ref]))}


def known_tools(box: Toolbox) -> Sequence[Tool]:
    """The tools of a toolbox; those of servers are asked for.

    Raises:
        OrchestratorError: a server cannot be reached.
        Interrupted: a signal came; the servers that were started have been ended.
    """
    if box.ready:
        return box.tools

    async def ask() -> Sequence[Tool]:
        async with box:
            return box.tools

    from orchestrator.cli.interrupts import run_async

    return run_async(ask)
