"""`python -m tests.support.starter`: a process with modules already imported, which forks into each requested program.

A program is `python -m MODULE ARGUMENTS`: a separate process with its own directory, environment and streams, which
ends as Python ends. Only the modules that nearly all programs import are already there, which are most of the time of
a short program; a program may name further ones. A module that only one command of the command line imports is still
imported by that command.

Stdin is a socket. Each message on it starts a program: JSON, the program's three streams, and a socket to which a
descriptor of the process is sent, and at the end its exit code.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import termios
from collections.abc import Sequence
from typing import Any

LOADED = (
    "anyio._backends._asyncio", "anyio._backends._trio", "dotenv", "networkx", "orchestrator.cli.app",
    "orchestrator.cli.terminal_questions", "orchestrator.cli.run_session", "orchestrator.cli.launch_refs",
    "orchestrator.cli.run_lookup", "orchestrator.context", "orchestrator.executor.drive",
    "orchestrator.executor.executor", "orchestrator.executor.calls.models",
    "orchestrator.executor.streaming", "orchestrator.graph.checks.all", "orchestrator.graph.reading",
    "orchestrator.models", "orchestrator.nodes",
    "orchestrator.render", "orchestrator.render.terminal.tree", "orchestrator.stores.sqlite",
    "orchestrator.tools.builtin.arithmetic", "rich.live", "sqlite3", "yaml",
)  # fmt: skip


def become(order: dict[str, Any], streams: list[int]) -> None:
    """Run the program in this process, to the end of the process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if order["terminal"]:  # as a login does
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who ignores it has all that he begins ignore it
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - for the rest of the process
    sys.stdout = sys.__stdout__ = open(1, "w", 1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[0] = order["cwd"]
    sys.argv[1:] = order["words"]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


def serve() -> tuple[dict[str, Any], list[int]] | None:
    """Fork programs until the socket is closed. In a program's process, return the order and the streams, else None."""
    with socket.socket(fileno=os.dup(0)) as orders, selectors.DefaultSelector() as waiting:
        waiting.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.data is not None:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    pid, asker = key.data
                    with asker:
                        asker.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                    continue
                data, descriptors, _, _ = socket.recv_fds(orders, 1 << 20, 4)
                if not data:
                    return None
                *streams, answers = descriptors
                order = json.loads(data)
                load(order["loads"])
                asker = socket.socket(fileno=answers)
                pid = os.fork()
                if pid == 0:
                    asker.close()
                    for other in waiting.get_map().values():
                        if other.data is not None:
                            os.close(other.fd)
                            other.data[1].close()
                    return order, streams
                process = os.pidfd_open(pid)
                socket.send_fds(asker, [b"begun"], [process])
                waiting.register(process, selectors.EVENT_READ, (pid, asker))
                for stream in streams:
                    os.close(stream)


def load(names: Sequence[str]) -> None:
    """Import modules for all programs that start from now on."""
    for name in names:
        importlib.import_module(name)
    if names:
        gc.freeze()  # who looks for garbage in what is shared gets a copy of it
        gc.set_threshold(50_000, 20, 100)  # and a short program needs to look for none


if __name__ == "__main__":
    load(LOADED)
    found = serve()
    if found is not None:
        become(*found)
