"""Commands about the audit of a store: audit export, audit verify."""

from __future__ import annotations

import json as json_module
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import exits, options, run_lookup, storage, trust
from orchestrator.cli.output import out, out_json, warn, written
from orchestrator.executor import Seal
from orchestrator.executor.audit_check import WrongLine, check

if TYPE_CHECKING:
    from orchestrator.executor import Executor

_LONGEST = 256 << 20
"""Maximum number of bytes of a line that is checked."""

Key = Annotated[
    str | None,
    typer.Option("--key", metavar="FILE", help="The file with the key of seals. Default: the key of this user."),
]


def audit_export(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="The ids of runs. Default: all.", show_default=False)
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="The file to write. Default: stdout.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Only what happened since: an age (30d) or a date.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", metavar="G", help="Only runs of this graph, by name, and all deletions.")
    ] = None,
    label: options.Labels = None,
    content: Annotated[
        bool, typer.Option("--content", help="Include the records. Text that looks like a secret is redacted.")
    ] = False,
    key: Key = None,
    place: Annotated[
        str | None,
        typer.Option("--place", metavar="NAME", help="The `place` of the seal of the program that ran them."),
    ] = None,
    store: options.Store = None,
) -> int:
    """Write who approved what, and when, what was called and deleted, as JSON Lines.

    The file has digests in place of content, and a seal on each line. See docs/audit.md.

    Example: orchestrator audit export --since 30d -o audit.jsonl
    """

    url = storage.store_url(store)
    if storage.place(url) is None or not storage.exists(url):
        raise exits.UsageError(f"audit export: there is no store {storage.shown_url(url)}")
    storage.check_output(output, url)
    start, labels = None if since is None else options.moment(since, "--since"), options.pairs(label)

    async def write_all(executor: Executor) -> None:
        with written(output) as write:
            async for line in executor.audit(runs or None, since=start, graph=graph, labels=labels, content=content):
                write(line.encode() + b"\n")

    run_lookup.looking(url, write_all, sealed=trust.audit_seal(url, key, place))
    return exits.COMPLETED


def audit_verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file of `audit export`.", show_default=False)],
    key: Key = None,
    no_seals: Annotated[
        bool,
        typer.Option(
            "--no-seals",
            help="Check only that lines fit each other: you do not have the key, or the file was exported without one.",
        ),
    ] = False,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Also compare the file with this store.")
    ] = None,
    json: options.Json = False,
) -> int:
    """Check a file of `audit export`, and name its first wrong line.

    Exit code 1 if a line was changed, removed, moved or added, or if the file has not all records of a run.

    Example: orchestrator audit verify audit.jsonl --store sqlite:///runs.db
    """

    seal = None if no_seals else trust.own_key() if key is None else trust.key_in(key)
    if seal is None and not no_seals:
        raise exits.UsageError("audit verify: you have no key of seals; give --key FILE, or --no-seals")
    try:
        with open(file, "rb") as lines:
            found = check(iter(partial(lines.readline, _LONGEST), b""), seal)
    except WrongLine as error:
        warn(f"error: {file}: {error}")
        return exits.FAILED
    faults = [
        f"the file has only {found['runs'][run_id][0]} records of run {run_id!r}: {why}"
        for run_id, why in found["stopped"].items()
    ]
    if store is not None:
        if seal is None and _is_sealed(file):
            raise exits.UsageError("audit verify: --store needs the key: digests of the records begin with its code")
        url = storage.store_url(store)
        if not storage.exists(url):
            raise exits.UsageError(f"audit verify: there is no store {storage.shown_url(url)}")
        given = Seal(seal, found["place"])
        faults += run_lookup.looking(
            url, lambda executor: executor.audit_faults(found["runs"], found["deleted"]), sealed=given
        )
    summary = {"runs": len(found["runs"]), "deleted": len(found["deleted"])}
    summary |= {name: found[name] for name in ("sealed_deletions", "records", "sealed", "sum")}
    if json:
        out_json({**summary, "seals": seal is not None, "faults": faults})
        return exits.FAILED if faults else exits.COMPLETED
    for fault in faults:
        warn(f"error: {fault}")
    if not faults:
        out(
            f"{summary['runs']} runs with {found['records']} records, {found['sealed']} of them sealed, and "
            f"{summary['deleted']} deletions, {found['sealed_deletions']} of them sealed: "
            "every line is as it was written" + (" (seals were not checked)" if seal is None else "")
        )
        out(f"sum  {found['sum']}")
    return exits.FAILED if faults else exits.COMPLETED


def _is_sealed(file: str) -> bool:
    """Return True if a checked file was written with a key."""
    with open(file, "rb") as lines:
        return bool(json_module.loads(lines.readline()).get("seals"))
