"""pgbouncer, a connection pooler by others, in front of a server: each transaction may get another session."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg

from tests.support.ports import free_port
from tests.support.postgres import PASSWORD, USER, PostgresServer

_PATIENCE = 60.0
"""Seconds that it may take to start: others may use the machine."""


def command() -> str | None:
    """Return the path of pgbouncer; None: it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def bouncer(program: str, server: PostgresServer, *, sessions: int = 4) -> Iterator[int]:
    """Start a pooler in transaction mode, on a port of 127.0.0.1, and yield the port.

    Args:
        program: see `command`.
        server: the server behind the pooler.
        sessions: number of sessions that the pooler has there for each database.
    """
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    port = free_port()
    facts = {
        "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "any",
        "pool_mode": "transaction", "default_pool_size": sessions, "max_client_conn": 500, "logfile": folder / "log",
    }  # fmt: skip
    behind = f"* = host=127.0.0.1 port={server.port} user={USER} password={PASSWORD}"
    settings = "\n".join(f"{name} = {value}" for name, value in facts.items())
    file = folder / "pgbouncer.ini"
    file.write_text(f"[databases]\n{behind}\n[pgbouncer]\n{settings}\n")
    file.chmod(0o644)
    user = None
    if os.geteuid() == 0:  # as root it refuses to run
        user = pwd.getpwnam("nobody").pw_uid
        os.chown(folder, user, -1)
    process = subprocess.Popen([program, "-q", file], user=user, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait(process, port)
        yield port
    finally:
        process.kill()
        process.wait(_PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        with suppress(psycopg.OperationalError), closing(psycopg.connect(url, connect_timeout=5)):
            return
        assert process.poll() is None, "pgbouncer ended"
        assert time.monotonic() < until, "pgbouncer does not answer"
        time.sleep(0.02)
