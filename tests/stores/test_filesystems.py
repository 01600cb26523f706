"""Which file systems a store is kept on: not on those that several machines share."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.errors import StoreUnsupported
from orchestrator.stores import open_store
from orchestrator.stores.sqlite import SQLiteStore
from orchestrator.stores.sqlite.files import ALLOW, _types, check_filesystem, filesystem_of, is_network
from tests.stores.runs import add_run
from tests.support.disks import can_mount, mounted

MOUNTS = r"""
22 27 0:21 / /proc rw,nosuid - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 27 0:30 / /mnt/team rw,relatime shared:2 master:3 - nfs4 server:/export rw,vers=4.2
31 30 8:2 / /mnt/team/local rw - xfs /dev/sdb1 rw
32 27 0:32 / /mnt/with\040blank rw - cifs //server/share rw
33 27 0:33 / /mnt/over rw - nfs server:/x rw
34 27 0:34 / /mnt/over rw - tmpfs tmpfs rw
35 27 0:35 / /mnt/under rw - tmpfs tmpfs rw
36 27 0:36 / /mnt/under rw - fuse.sshfs me@host: rw
37 27 0:37 / /c rw - 9p C:\134 rw,aname=drvfs
a line of another kind
38 27 0:38 / /mnt/cut
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/runs.db", "ext4"), ("/", "ext4"), ("/mnt/team/runs.db", "nfs4"), ("/mnt/team", "nfs4"),
        ("/mnt/team2/runs.db", "ext4"), ("/mnt/team/local/runs.db", "xfs"), ("/mnt/with blank/a/runs.db", "cifs"),
        ("/mnt/over/runs.db", "tmpfs"), ("/mnt/under/runs.db", "fuse.sshfs"), ("/c/Users/runs.db", "9p"),
        ("/mnt/cut/runs.db", "ext4"),
    ],
)  # fmt: skip
def test_a_path_is_on_the_file_system_that_is_mounted_nearest_and_last(path: str, kind: str) -> None:
    assert filesystem_of(path, MOUNTS) == kind


def test_the_types_of_all_mounts_are_known_without_their_places() -> None:
    """Where none of them is of a network, no path is looked up."""
    assert {"proc", "ext4", "nfs4", "xfs", "cifs", "nfs", "tmpfs", "fuse.sshfs", "9p"} <= _types(MOUNTS)
    local = "\n".join(line for line in MOUNTS.splitlines() if not is_network(line.partition(" - ")[2].split(" ")[0]))
    assert any(map(is_network, _types(MOUNTS)))
    assert not any(map(is_network, _types(local)))
    assert _types("") == set()


def test_without_a_word_about_it_nothing_is_said() -> None:
    assert filesystem_of("/home/me/runs.db", "") == ""
    assert not is_network("")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.rclone"]
)
def test_file_systems_that_machines_share_are_known(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "fuseblk", "fuse.mergerfs", "fuse.gocryptfs"]
)
def test_file_systems_of_one_machine_are_allowed(kind: str) -> None:
    assert not is_network(kind)


@contextmanager
def shared_by_ssh(path: Path) -> Iterator[None]:
    """A mount of type `fuse.sshfs`, as the kernel knows it. Nothing answers behind it, and nothing needs to."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("there is no FUSE here")
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    failed = libc.mount(b"me@host:/", os.fsencode(path), b"fuse.sshfs", 0, options.encode())
    os.close(device)  # whatever is asked of it now fails at once
    if failed:
        pytest.skip(f"this user may not mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.umount2(os.fsencode(path), 2)


@pytest.mark.parametrize("place", ["share", "share/new/dir", "link"])
def test_a_store_on_a_network_file_system_is_refused_by_name(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    file = tmp_path / place / "runs.db"
    with shared_by_ssh(share):
        with pytest.raises(StoreUnsupported, match=rf"network file system \(fuse.sshfs\).*local disk.*{ALLOW}=1"):
            open_store(f"sqlite:///{file}")
        check_filesystem(file, "sqlite:///x", allowed=True)
        monkeypatch.setenv(ALLOW, "1")
        check_filesystem(file, "sqlite:///x")


@pytest.mark.anyio
@pytest.mark.skipif(not can_mount(), reason="this user may not mount")
async def test_a_store_on_a_mount_of_this_machine_is_allowed(tmp_path: Path) -> None:
    with mounted(tmp_path):
        store = SQLiteStore(tmp_path / "runs.db")
        await add_run(store)
        assert len(await store.read("r")) == 1
        await store.close()
