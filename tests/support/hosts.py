"""Hosts of a private network on this machine: network namespaces, joined by a bridge, with programs in them.

    with network() as net:
        left, right = net.host("left"), net.host("right")
        program = left.run(["python", "-m", "http.server"])
        left.unplug()   # from now on its packets vanish without an error

Needs Linux, root, `ip` (iproute2) and `unshare` (util-linux). Only this process and its hosts are on the bridge, and no
host has a route to anywhere else.

A program on a host has process ids, a host name, a machine id and a boot id of its own. So no other process can see
whether it is alive, as between machines.

Each network, bridge and namespace has a number in its name, and the process that uses a number holds a lock. What a
killed process left is removed by the next one that makes a network, since the lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO

LOCKS = Path("/run/orchestrator-hosts")
"""A file for each network that is there: it names the process that uses it, and the folder of its files."""
MOST = 200
"""Networks at the same time."""
PATIENCE = 30.0
"""Seconds for which a program may take to begin, or to end after SIGKILL."""
_NAMESPACES = Path("/run/netns")
_NOBODY = "02:00:00:00:00:fe"
"""A hardware address that no host has."""
_BEGIN = """
hostname "$1"; mount --bind "$2/machine-id" /etc/machine-id; mount --bind "$2/boot-id" /proc/sys/kernel/random/boot_id
shift 2
exec "$@"
"""


class Network:
    """A bridge, with this process at `address` and up to 250 hosts. See `network`."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self.address = self._address(254)
        """Of this process."""
        self.hosts: list[Host] = []
        self.programs: list[Program] = []
        """All that were begun on them."""

    @property
    def bridge(self) -> str:
        """The name of the bridge."""
        return f"oh{self.number}"

    def host(self, name: str) -> Host:
        """Add a host.

        Args:
            name: the host's name in this network: letters and digits.
        """
        assert name.isalnum(), name
        assert all(one.name != name for one in self.hosts), f"there is a host {name} already"
        place = len(self.hosts) + 1
        host = Host(self, name, place, self._address(place))
        ip(f"netns add {host.namespace}")
        self.hosts.append(host)
        ip(
            f"link add name {host.port} type veth peer name eth0 netns {host.namespace}",
            f"link set dev {host.port} master {self.bridge} up",
        )
        ip("link set dev lo up", f"address add {host.address}/24 dev eth0", "link set dev eth0 up", on=host.namespace)
        for kind in ("machine-id", "boot-id"):
            host.folder.mkdir(exist_ok=True)
            (host.folder / kind).write_text(f"{uuid.uuid4().hex if kind == 'machine-id' else uuid.uuid4()}\n")
        return host

    def _address(self, place: int) -> str:
        return f"10.213.{self.number}.{place}"

    def _make(self) -> None:
        ip(
            # With an address of its own: else it has that of a port, and another one when this port is unplugged.
            f"link add name {self.bridge} address 02:00:00:00:{self.number:02x}:ff type bridge",
            f"address add {self.address}/24 dev {self.bridge}",
            f"link set dev {self.bridge} up",
        )


class Host:
    """A host of a network. See `Network.host`."""

    def __init__(self, network: Network, name: str, place: int, address: str) -> None:
        self.network, self.name, self.address = network, name, address
        self.namespace = f"{network.bridge}-{name}"
        """The name of its network namespace."""
        self.port = f"{network.bridge}p{place}"
        """The end of its cable at the bridge."""
        self.folder = network.folder / name
        """A folder for its files."""

    def run(
        self,
        words: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.DEVNULL,
        stderr: int | IO[bytes] | None = None,
    ) -> Program:
        """Start a program on this host.

        Args:
            words: the program and its arguments, one string each.
            env: environment of the program; None: that of this process.
            user: the user that runs the program; None: that of this process.
            stdin, stdout, stderr: as in `subprocess.Popen`.
        """
        become = [] if user is None else ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"]
        around = ["ip", "netns", "exec", self.namespace, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                  "--uts", "sh", "-ec", _BEGIN, "sh", self.name, str(self.folder)]  # fmt: skip
        process = subprocess.Popen(
            [*around, *become, *map(str, words)], stdin=stdin, stdout=stdout, stderr=stderr, env=env,
            start_new_session=True,  # Ctrl-C is for who made the network
        )  # fmt: skip
        self.network.programs.append(program := Program(process))
        return program

    # -- faults --------------------------------------------------------------------------------------------------------

    def down(self) -> None:
        """Take the network interface down: programs get errors at once."""
        ip("link set dev eth0 down", on=self.namespace)

    def up(self) -> None:
        """Bring the network interface up again."""
        ip("link set dev eth0 up", on=self.namespace)

    def unplug(self) -> None:
        """Let all packets from and to this host vanish, without an error."""
        ip(f"link set dev {self.port} nomaster")

    def plug(self) -> None:
        """Let packets through again."""
        ip(f"link set dev {self.port} master {self.network.bridge}")

    def lose(self, other: Host) -> None:
        """Let all packets from this host to another one vanish; those of the other one arrive."""
        ip(f"neighbour replace {other.address} lladdr {_NOBODY} nud permanent dev eth0", on=self.namespace)

    def find(self, other: Host) -> None:
        """Let packets to another host through again."""
        ip(f"neighbour delete {other.address} dev eth0", on=self.namespace)


class Program:
    """A program on a host. It is process 1 of its own namespace, so all processes that it starts end with it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @cached_property
    def pid(self) -> int:
        """The program's process id as this process sees it."""
        around = self._process.pid
        deadline = time.monotonic() + PATIENCE
        while True:
            if found := _children(around):
                return found[0]
            assert self._process.poll() is None, f"it ended with {self._process.returncode} before it began"
            assert time.monotonic() < deadline, "it does not begin"
            time.sleep(0.002)

    @property
    def stdout(self) -> IO[bytes]:
        """The program's stdout, if `stdout=subprocess.PIPE`."""
        assert self._process.stdout is not None
        return self._process.stdout

    def say(self, line: str) -> None:
        """Write a line to the program's stdin, if `stdin=subprocess.PIPE`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    @property
    def ended(self) -> bool:
        """True if the program has ended."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send the program a signal, unless it has ended. It needs a handler for all but SIGKILL and SIGSTOP."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait until the program ends, and return its exit code, which is not 0 if a signal ended it."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the program and all processes that it started."""
        self.signal(signal.SIGKILL)
        self.close()

    def end(self) -> None:
        """Kill the program, even if it is not yet in its host's namespace, where `_remove` would find it."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait until the program has ended, and close this process's ends of its streams."""
        self.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def network() -> Iterator[Network]:
    """Make a network, and remove it at the end with all programs on its hosts."""
    remove_abandoned()
    with _locked_number() as (number, file):
        folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        folder.chmod(0o755)
        file.write(f"{os.getpid()}\n{folder}\n")
        file.flush()
        net = Network(number, folder)
        try:
            net._make()
            yield net
        finally:
            for program in net.programs:
                program.end()
            _remove(number, folder)
            for program in net.programs:
                program.close()


def remove_abandoned() -> list[int]:
    """Remove the networks of processes that were killed, and return their numbers."""
    found = []
    LOCKS.mkdir(parents=True, exist_ok=True)
    for path in LOCKS.iterdir():
        with _locked(path) as file:
            if file is not None and (lines := file.read().splitlines()):
                _remove(int(path.name), Path(lines[1]) if len(lines) > 1 else None)
                file.truncate(0)
                found.append(int(path.name))
    return found


def ip(*commands: str, on: str | None = None) -> None:
    """Run commands of `ip`.

    Args:
        commands: the commands, without the `ip` in front.
        on: the namespace of the commands; None: the machine's.

    Raises:
        AssertionError: one of them failed; those after it did not run.
    """
    words = ["ip", *(["-n", on] if on else []), "-batch", "-"]
    done = subprocess.run(words, input="\n".join(commands) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, f"{commands}: {done.stderr}"


def _remove(number: int, folder: Path | None) -> None:
    bridge = Network(number, Path()).bridge
    spaces = [one.name for one in _NAMESPACES.glob(f"{bridge}-*")] if _NAMESPACES.exists() else []
    for name in spaces:
        _kill_all(name)
        ip(f"netns delete {name}")
    links = Path("/sys/class/net")
    for name in sorted(one.name for one in links.iterdir() if one.name.startswith(f"{bridge}p") or one.name == bridge):
        with contextlib.suppress(AssertionError):  # its other end went with the namespace a moment later
            ip(f"link delete dev {name}")
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _kill_all(namespace: str) -> None:
    """Kill the processes of a namespace, and wait until they have ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
        # One that its parent has not waited for yet is in no namespace any more.
        if not (pids := [int(word) for word in done.stdout.split()]):
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < deadline, f"processes of {namespace} do not end: {pids}"
        time.sleep(0.005)


@contextmanager
def _locked_number() -> Iterator[tuple[int, IO[str]]]:
    for number in range(MOST):
        with _locked(LOCKS / str(number)) as file:
            if file is not None and not file.read():
                try:
                    yield number, file
                finally:
                    file.truncate(0)
                return
    raise AssertionError(f"all {MOST} networks are in use, see {LOCKS}")


@contextmanager
def _locked(path: Path) -> Iterator[IO[str] | None]:
    """Lock a file for this process alone, and yield it; None: another process has it. A lock ends with its process."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        file.seek(0)
        yield file


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
