"""The crash kit: stop a graph's runs at every moment, resume them, and compare the result with an undisturbed run.

    from orchestrator.testing import assert_crash_safe

    async def test_it_survives_any_crash():
        await assert_crash_safe(graph, {"question": "..."}, model=model, tools=tools)

`assert_crash_safe` stops a run in process, before and after every write to its journal. `assert_kill_safe` kills
real processes with SIGKILL at seeded moments. `assert_disk_safe` lets the disk run full, fail, and tear its last
write. All three compare what must not depend on a crash, and raise `CrashUnsafe` (an `AssertionError`) that names
the write and the difference. No test framework is needed; in-process forms run on both backends of anyio.
"""

from __future__ import annotations

from orchestrator.testing.crash.facts import CrashReport, CrashUnsafe
from orchestrator.testing.crash.in_process import assert_crash_safe
from orchestrator.testing.crash.processes import assert_disk_safe, assert_kill_safe

__all__ = ["CrashReport", "CrashUnsafe", "assert_crash_safe", "assert_disk_safe", "assert_kill_safe"]
