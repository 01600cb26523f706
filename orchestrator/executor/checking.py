"""Checking a store: every record, graph and row, leases, and data that belongs to no run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.errors import (
    EncryptionKeyMissing,
    OrchestratorError,
    RunConflict,
    RunUnknown,
    StoreCorrupt,
    StoreError,
)
from orchestrator.executor import lease as leases
from orchestrator.executor.calls.memory import value_of
from orchestrator.executor.host import Host
from orchestrator.executor.journal import questions_of, row_of, totals_of
from orchestrator.kernel.fold import apply_stored
from orchestrator.kernel.run_state import RunState
from orchestrator.kernel.status import FINAL
from orchestrator.stores.base import Finding, RunInfo, Store
from orchestrator.stores.codec import encoded_in, key_of
from orchestrator.stores.items import AREAS
from orchestrator.stores.requests import Append, RunQuery
from orchestrator.stores.rows import MAX_DEATHS

_AT_ONCE = 200


@dataclass(slots=True)
class Checked:
    """The result of a check of a store."""

    runs: int = 0
    """Number of runs that were checked."""
    records: int = 0
    unread: int = 0
    """Number of runs and items that could not be read, for example because a key or an archive is missing."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if everything was read, and no fault is left."""
        return not self.unread and all(one.note or one.repaired for one in self.findings)

    def skip(self, why: str, names: list[str], what: str) -> None:
        """Report runs or items that could not be read for the same reason."""
        self.unread += len(names)
        about = "" if len(names) == 1 else f"{len(names)} {what} were "
        run_id = names[0] if what == "runs" and len(names) == 1 else ""
        self.findings.append(Finding(f"{about}not checked: {why}", run_id, note=True))


async def check(host: Host, *, repair: bool, progress: Callable[[int], object] | None) -> Checked:
    """See `Executor.check`."""
    found = Checked(findings=await host.store.check(repair=repair))
    unread: dict[str, list[str]] = {}
    seen = 0
    cursor: str | None = None
    while True:
        page = await host.store.runs(RunQuery(after=cursor, limit=_AT_ONCE))
        for info in page.runs:
            if progress is not None:
                progress(seen)
            seen += 1
            try:
                await _check_run(host, info.run_id, found, repair=repair)
                found.runs += 1
            except StoreError as error:
                unread.setdefault(str(error), []).append(info.run_id)
        cursor = page.cursor
        if cursor is None:
            break
    for why, names in unread.items():
        found.skip(why, names, "runs")
    await _check_items(host.store, found)
    sealed = [(one.name, text) for one in await host.store.schedules() if (text := encoded_in(one.values)) is not None]
    for name, text in sealed:
        found.skip(str(EncryptionKeyMissing(f"schedule {name!r}", key_of(text))), [name], "schedules")
    return found


async def _check_items(store: Store, found: Checked) -> None:
    rows = getattr(store, "inner", store)  # with a codec: the wrapping store lists no item that it cannot decode
    for area in AREAS:
        unread: dict[str, list[str]] = {}
        after: tuple[str, str] | None = None
        while page := await rows.items(area, after=after, limit=_AT_ONCE):
            after = page[-1].place
            for item in page:
                try:
                    if (kept := await store.item(area, item.namespace, item.key)) is not None:
                        value_of(kept)
                except (StoreError, ValueError) as error:
                    unread.setdefault(type(error).__name__, []).append(str(error))
        for texts in unread.values():
            found.skip(texts[0], texts, f"items of {area}")


async def _check_run(host: Host, run_id: str, found: Checked, *, repair: bool) -> None:
    """Check a run.

    Raises:
        StoreError: the store cannot be read.
    """
    store = host.store
    try:
        info = await store.info(run_id)
        records = await store.read(run_id, upto=info.head)
        machine = RunState(await host.loader.plan_of(info, records))
        for record in records:
            apply_stored(machine, record)
    except RunUnknown:
        return  # deleted since then
    except StoreCorrupt as error:
        found.findings.append(Finding(f"{error}", run_id))
        return
    except StoreError:
        raise
    except (OrchestratorError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        found.findings.append(Finding(f"its journal cannot be folded: {error or type(error).__name__}", run_id))
        return
    found.records += len(records)
    held = leases.is_held(info.lease)
    wrong = [] if held else _differences(info, machine)
    if not held:
        try:
            wrong += await _beside(store, info, machine)
        except RunUnknown:
            return  # deleted since then
    if wrong:
        repaired = await _rewrite(host, info, machine) if repair else ""
        found.findings += [Finding(what, run_id, repaired, note) for what, note in wrong]
    found.findings += await _around(host, info, held=held)


def _differences(info: RunInfo, machine: RunState) -> list[tuple[str, bool]]:
    """Return the differences between a row and its journal, and whether they are only for information."""
    right = row_of(machine, structure=info.structure, content=info.content)
    faults = [
        (f"its row has {name} {getattr(info, name)!r}, and its journal {getattr(right, name)!r}", False)
        for name in ("status", "head", "waiting")
        if getattr(info, name) != getattr(right, name)
    ]
    if info.status in FINAL and info.due is not None:
        faults.append(("it has ended, but its row has a due time", False))
    if info.summary != right.summary:
        faults.append(("the texts or the usage in its row are older than its journal", True))
    return faults


async def _beside(store: Store, info: RunInfo, machine: RunState) -> list[tuple[str, bool]]:
    """Return how the stored totals and open questions differ from a journal, and that this is only for information."""
    totals = await store.totals(info.run_id)
    faults = [("its totals are missing, or older than its journal", True)] if totals != totals_of(machine) else []
    if await store.open_questions(info.run_id) != questions_of(machine):
        faults.append(("its open questions are missing, or differ from its journal", True))
    return faults


async def _rewrite(host: Host, info: RunInfo, machine: RunState) -> str:
    """Rewrite a run's row from its journal. Returns what was done, empty if another process has taken the run."""
    right = row_of(machine, structure=info.structure, content=info.content)
    due = right.due if info.status != right.status or info.status in FINAL else info.due
    try:  # without a lease: an executor that resumes the run meanwhile writes its row itself
        await host.store.append(
            Append(
                info.run_id,
                [],
                after=info.head,
                status=right.status,
                due=due,
                waiting=right.waiting,
                summary=right.summary,
                totals=right.totals,
                questions=right.questions,
            )
        )
    except (RunConflict, RunUnknown):
        return ""
    return "written again from the journal"


async def _around(host: Host, info: RunInfo, *, held: bool) -> list[Finding]:
    """Return findings about a run's lease, its caller and its drives."""
    found: list[Finding] = []
    run_id, lease, parent = info.run_id, info.lease, info.parent
    if lease is not None and not held and info.status == "running":
        found.append(Finding("the process that drove it has ended; `recover` continues it", run_id, note=True))
    if info.deaths >= MAX_DEATHS and info.status not in FINAL:
        why = f" ({info.fault})" if info.fault else ""
        found.append(
            Finding(f"its drives died {info.deaths} times{why}; only `resume` continues it", run_id, note=True)
        )
    if parent is not None and parent.relation == "call" and info.labels.get("parent") == parent.run_id:
        try:
            await host.store.info(parent.run_id)
        except RunUnknown:
            found.append(
                Finding(
                    f"the run {parent.run_id!r} that called it no longer exists; delete it if it is not needed",
                    run_id,
                    note=True,
                )
            )
        except StoreCorrupt:
            pass  # reported when that run is checked
    return found
