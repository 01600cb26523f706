"""A PostgreSQL server with a standby, which is promoted when the server dies."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.postgres import USER, PostgresServer, programs, server_user


class Standby(PostgresServer):
    """A server that replays the log of another one, until it is promoted."""

    @classmethod
    def of(cls, primary: PostgresServer) -> Standby:
        """Make a standby from a base backup, and start it."""
        folder = Path(tempfile.mkdtemp(prefix="pg-"))
        user = server_user()
        if user is not None:
            os.chown(folder, *user)
            if (primary.folder / "pg").exists():  # else it runs the installed programs
                shutil.copytree(primary.folder / "pg", folder / "pg", symlinks=True)
        standby = cls(folder, free_port())
        standby.run(
            "pg_basebackup", "--pgdata", str(standby.data), "--host", str(primary.folder), "--port", str(primary.port),
            "--username", USER, "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync",
        )  # fmt: skip
        with (standby.data / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{folder}'\n")
        standby.start()
        return standby

    def promote(self) -> None:
        """Promote the standby, and wait until it accepts writes."""
        self.run("pg_ctl", "promote", "-w", "-t", "60", "-D", str(self.data))


@contextmanager
def with_standby(*, synchronous: bool) -> Iterator[tuple[PostgresServer, Standby]]:
    """Start a primary with the template of stores, and a standby that has all of its data.

    Args:
        synchronous: whether a commit waits for the standby.
    """
    assert (programs() / "pg_basebackup").exists()
    primary = PostgresServer.make(durable=True)
    standby: Standby | None = None
    try:
        primary.make_template()
        standby = Standby.of(primary)
        wait_for(lambda: primary.execute("SELECT state FROM pg_stat_replication") == [("streaming",)])
        if synchronous:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            wait_for(lambda: primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
        yield primary, standby
    finally:
        for server in (standby, primary):
            if server is not None:
                server.remove()


def url_of(database: str, *servers: PostgresServer, **parameters: object) -> str:
    """Return the URL of a store on the one of these servers that accepts writes."""
    found = {
        "host": ",".join(str(one.folder) for one in servers), "port": ",".join(str(one.port) for one in servers),
        "target_session_attrs": "read-write", **parameters,
    }  # fmt: skip
    return f"postgresql://{USER}@/{database}?" + "&".join(f"{key}={value}" for key, value in found.items())


def wait_for(condition: object, seconds: float = 30.0) -> None:
    """Wait until a condition is true."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.02)
