"""Servers that a command starts end with it, however it ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.shell import Shell
from tests.support.sizes import sized

LOADS = ("mcp", "orchestrator.tools.mcp.stdio")
SERVER = """
import os, signal, sys, time
from pathlib import Path
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1]).write_text(f"{os.getpid()}\\n")
sys.stdin.read()
while "stubborn" in sys.argv:
    time.sleep(60)
"""


def there(pid: int) -> bool:
    """Whether a process is there; one that has ended and is not waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (signal.SIGTERM, "", 130),
        (signal.SIGTERM, "stubborn", 130),
        (signal.SIGINT, "", 130),
        (signal.SIGHUP, "", 130),
        (signal.SIGKILL, "", -9),  # it reads the end of its stdin
    ][sized(1, 0) :: sized(3, 1)],
)
def test_a_server_that_does_not_answer_ends_with_the_command(
    shell: Shell, number: signal.Signals, kind: str, code: int
) -> None:
    (shell.place / "server.py").write_text(SERVER)
    with shell.begin("tools", f"mcp:{sys.executable} server.py pid {kind}", loads=LOADS) as process:
        shell.wait_for("pid")
        server = int((shell.place / "pid").read_text())
        try:
            process.signal(number)
            assert process.wait() == code
            shell.until(lambda: not there(server))
        finally:
            if there(server):
                os.kill(server, signal.SIGKILL)
