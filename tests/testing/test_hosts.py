"""Hosts that tests make out of namespaces: they are apart as machines are, and nothing of them stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.stores.owner import Owner, is_dead
from tests.support.hosts import Host, Network, Program, network, remove_abandoned
from tests.support.programs import ROOT

pytestmark = pytest.mark.hosts

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 7)) as server:
    print("ready", flush=True)
    while True:
        client, (address, _) = server.accept()
        client.sendall(address.encode())
        client.close()
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 7), 0.6) as client:
    print(client.recv(20).decode())
"""
IDENTITY = """
import json, sys
from orchestrator.stores.owner import Owner
print(json.dumps(Owner.here().data()), flush=True)
sys.stdin.read()
"""
LEAVES = """
import subprocess, sys
from tests.support.hosts import network
with network() as net:
    net.host("alone").run([sys.executable, "-c", "import time; time.sleep(600)"])
    print(net.number, net.folder, net.hosts[0].namespace, flush=True)
    sys.stdin.read()
"""


@contextmanager
def served(net: Network) -> Iterator[tuple[Host, Host]]:
    """A client's and a server's host."""
    client, server = net.host("client"), net.host("server")
    program = server.run([sys.executable, "-c", SERVER, server.address], stdout=subprocess.PIPE)
    assert program.stdout.readline() == b"ready\n"
    yield client, server
    program.kill()


def said(host: Host, code: str, *words: str) -> str:
    """The last line of what a Python program writes there, be it an error."""
    program = host.run(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    text = program.stdout.read().decode()
    program.wait()
    program.stdout.close()
    return text.strip().rpartition("\n")[2]


def test_programs_on_hosts_reach_each_other_and_nothing_else() -> None:
    with network() as net, served(net) as (client, server):
        assert said(client, CLIENT, server.address) == client.address
        assert "unreachable" in said(client, CLIENT, "192.0.2.1")


@pytest.mark.parametrize(
    ("cut", "heal", "error"),
    [(Host.down, Host.up, "unreachable"), (Host.unplug, Host.plug, "timed out")],
    ids=["down", "silent"],
)
@pytest.mark.parametrize("who", ["client", "server"])
def test_a_host_that_is_cut_off_reaches_nobody_until_it_is_healed(
    cut: Callable[[Host], None], heal: Callable[[Host], None], error: str, who: str
) -> None:
    with network() as net, served(net) as hosts:
        client, server = hosts
        victim = hosts[who == "server"]
        cut(victim)
        expected = error if who == "client" else "timed out"
        assert expected in said(client, CLIENT, server.address)
        heal(victim)
        assert said(client, CLIENT, server.address) == client.address


def test_packets_of_one_direction_between_two_hosts_vanish_and_those_to_others_do_not() -> None:
    with network() as net, served(net) as (client, server):
        other = net.host("other")
        for one, its_other in ((client, server), (server, client)):
            one.lose(its_other)
            assert "timed out" in said(client, CLIENT, server.address)
            assert said(other, CLIENT, server.address) == other.address
            one.find(its_other)
            assert said(client, CLIENT, server.address) == client.address


def test_a_host_that_is_unplugged_changes_nothing_for_the_others() -> None:
    with network() as net, served(net) as (client, server):
        address = Path(f"/sys/class/net/{net.bridge}/address")
        before = address.read_text()
        for host in (client, server):
            host.unplug()
            assert address.read_text() == before, "hosts have the old one in their tables for half a minute"
            host.plug()


def test_no_process_can_see_whether_a_process_of_another_host_lives() -> None:
    with network() as net:
        # Both are there at once: what is gone gives its number away.
        programs = [
            net.host(name).run([sys.executable, "-c", IDENTITY], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
            for name in ("left", "right")
        ]  # fmt: skip
        left, right = (json.loads(program.stdout.readline()) for program in programs)
    here = Owner.here().data()
    for part in ("host", "machine", "boot", "space"):
        assert len({left[part], right[part], here[part]}) == 3, part
    assert (left["pid"], left["host"]) == (1, "left")
    assert not is_dead(left), "it is gone, and this process cannot know"


def test_what_a_program_began_ends_with_it() -> None:
    with network() as net:
        begins = "import subprocess, time; subprocess.Popen(['sleep', '600']); print(1, flush=True); time.sleep(600)"
        program = net.host("alone").run([sys.executable, "-c", begins], stdout=subprocess.PIPE)
        assert program.stdout.readline() == b"1\n"
        assert len(inside(net.hosts[0])) == 2
        program.signal(signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        program.kill()
        assert program.ended
        wait_for(lambda: not inside(net.hosts[0]))


def inside(host: Host) -> list[str]:
    """The processes of a host, without the ones around its programs."""
    done = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True)
    found = []
    for pid in done.stdout.split():
        comm = Path(f"/proc/{pid}/comm")
        if comm.exists() and comm.read_text().strip() != "unshare":
            found.append(pid)
    return found


def wait_for(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_nothing_is_left_when_a_test_fails() -> None:
    made: list[tuple[Network, Program]] = []

    def fail() -> None:
        with network() as net:
            made.append((net, net.host("alone").run(["sleep", "600"])))
            assert not made, "as a test fails"

    with pytest.raises(AssertionError, match="as a test fails"):
        fail()
    ((net, program),) = made
    assert program.wait() != 0
    assert not there(net.bridge, net.folder)


def test_what_a_killed_test_left_is_removed_by_the_next_one() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    number, folder, namespace = process.stdout.readline().split()
    bridge = f"oh{number}"
    assert namespace == f"{bridge}-alone"
    assert int(number) not in remove_abandoned(), "it is in use"
    assert there(bridge, Path(folder))
    process.kill()
    process.communicate()
    with network() as net:  # this one, or another one that begins just now, removes it
        wait_for(lambda: net.number == int(number) or not there(bridge, Path(folder)))
        assert not Path(folder).exists()
        assert not net.hosts


def there(bridge: str, folder: Path) -> list[str]:
    """What there is of a network."""
    links = [one.name for one in Path("/sys/class/net").iterdir() if one.name.startswith((f"{bridge}p", bridge))]
    spaces = [str(one) for one in Path("/run/netns").glob(f"{bridge}-*")]
    return links + spaces + ([str(folder)] if folder.exists() else [])
