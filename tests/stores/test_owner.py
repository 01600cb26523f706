"""Who holds a lease: what is asked of the system once, and anew in a forked process."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os
from orchestrator.stores import owner

def started(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]

here = [owner.Owner.here() for _ in range(3)]
assert {one.start for one in here} == {started(os.getpid())}
assert len({one.executor for one in here}) == 3
assert owner._own_start.cache_info().misses == 1
pid = os.fork()
if not pid:
    # A later fork may have the id of a process before it, so nothing is kept of those.
    kept = owner._own_start.cache_info().currsize
    os._exit(kept or owner.Owner.here().start != started(os.getpid()))
assert os.waitpid(pid, 0)[1] == 0
assert owner.Owner.here().start == here[0].start
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_when_a_process_started_is_asked_once_and_anew_in_a_fork() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
