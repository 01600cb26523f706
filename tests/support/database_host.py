"""A PostgreSQL server on a host of a private network, which tests kill, start again and cut off as a machine."""

from __future__ import annotations

import shutil
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.support.hosts import PATIENCE, Host, Program
from tests.support.postgres import copy_programs, programs

PORT = 5432
_USER = "nobody"
_SETTINGS = {
    "max_connections": 100, "shared_buffers": "32MB", "max_wal_size": "512MB", "fsync": "off",
    "full_page_writes": "off", "unix_socket_directories": "", "log_min_messages": "warning",
    "autovacuum_naptime": "5min",
}  # fmt: skip
"""It does not wait for the disk: its processes are killed, and the machine is not."""


class DatabaseHost:
    """A server that listens at the address of its host.

    Args:
        host: where it runs. Its files are in the host's folder.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._folder = host.folder / "postgres"
        self._programs = programs()
        self._program: Program | None = None

    def url(self, **parameters: object) -> str:
        """Return the URL of the server's store."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgresql://orchestrator@{self.host.address}:{PORT}/postgres" + (f"?{query}" if query else "")

    @property
    def log(self) -> str:
        """The text of the server's log."""
        return (self.host.folder / "postgres.log").read_text(errors="replace")

    def make(self) -> None:
        """Make the server's files, and start it."""
        self._folder.mkdir()
        shutil.chown(self._folder, _USER, "nogroup")
        if not all(one.stat().st_mode & stat.S_IXOTH for one in self._programs.parents):
            self._programs = copy_programs(self.host.folder)
        made = subprocess.run(
            [self._programs / "initdb", "-D", self._folder / "data", "-U", "orchestrator", "--auth=trust", "--no-sync",
             "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"],
            user=_USER, group="nogroup", extra_groups=[], cwd=self._folder, capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        with (self._folder / "data" / "postgresql.conf").open("a") as file:
            settings = {**_SETTINGS, "listen_addresses": self.host.address, "port": PORT}
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        with (self._folder / "data" / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self.host.network.address}/24 trust\n")
        self.start()

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        import psycopg

        with (self.host.folder / "postgres.log").open("ab") as log:
            self._program = self.host.run(
                [self._programs / "postgres", "-D", self._folder / "data"], user=_USER, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(host=self.host.address, port=PORT, user="orchestrator", dbname="postgres").close()
                return
            assert not self._program.ended, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill all processes of the server at once, as when a machine fails; its files are kept."""
        assert self._program is not None, "it does not run"
        self._program.kill()
        self._program = None
        # Process 1 of its namespace it is again next time, so that it does not take its own lock for another one's.
        Path(self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)
