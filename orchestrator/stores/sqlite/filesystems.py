"""Where a store must not be kept: file systems that several machines share.

SQLite's log needs memory that all processes share, and locks that hold; over a network neither is certain, and two
machines then write over each other's records without an error. Linux says in `/proc/self/mountinfo` what is mounted
where; other systems say nothing that can be asked for cheaply, so nothing is refused there.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import StoreUnsupported

ALLOW = "ORCHESTRATOR_ALLOW_NETWORK_STORE"
"""The environment variable that allows a store on any file system, if it is 1."""

NETWORK = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs",
    }
)  # fmt: skip
"""Types of file systems that several machines may use at the same time, or that a host shares with a guest."""

NETWORK_FUSE = frozenset(
    {
        "blobfuse", "blobfuse2", "ceph", "cephfs", "curlftpfs", "davfs", "davfs2", "gcsfuse", "glusterfs", "goofys",
        "google-drive-ocamlfuse", "juicefs", "moosefs", "mfs", "mount-s3", "mountpoint-s3", "rclone", "s3fs",
        "seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse",
    }
)  # fmt: skip
"""The same, of file systems in user space: mounted as `fuse.NAME`, or with that name as their source."""


def check_filesystem(path: Path, url: str, *, allowed: bool = False) -> None:
    """Refuse a store's file on a network file system.

    Args:
        allowed: whether the caller takes the risk. So does who sets `ORCHESTRATOR_ALLOW_NETWORK_STORE=1`.

    Raises:
        StoreUnsupported: it is on one.
    """
    if allowed or os.environ.get(ALLOW) == "1":
        return
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:  # not Linux, or not to be seen
        return
    if not any(map(is_network, _types(mounts))):
        return  # as on most machines: where the path leads to makes no difference
    kind = filesystem_of(os.path.realpath(path), mounts)
    if is_network(kind):
        raise StoreUnsupported(
            f"store {url}: {path} is on a network file system ({kind}), where SQLite can lose records silently; "
            f"name a file on a local disk, or set {ALLOW}=1 if only one machine ever uses it"
        )


def is_network(kind: str) -> bool:
    """Whether a file system of this type is one that machines share."""
    name = kind.lower()
    if name.startswith("fuse."):
        return name.removeprefix("fuse.") in NETWORK_FUSE
    return name in NETWORK


def filesystem_of(path: str, mountinfo: str) -> str:
    """The type of the file system that a path is on; empty if that is not said.

    Args:
        path: absolute, without symbolic links. It need not exist.
        mountinfo: what `/proc/self/mountinfo` says; see proc_pid_mountinfo(5).
    """
    best, found = "", ""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, told = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5 or not told[0]:
            continue
        place = _unescaped(fields[4])
        inside = place == "/" or path == place or path.startswith(f"{place}/")
        if inside and len(place) >= len(best):  # of several at one place the last one is on top
            best, found = place, told[0]
    return found


def _types(mountinfo: str) -> set[str]:
    """The types of all file systems that are mounted, and perhaps other words."""
    return {line.partition(" ")[0] for line in mountinfo.split(" - ")[1:]}


def _unescaped(text: str) -> str:
    """A path in mountinfo, which writes blanks and backslashes as three octal digits."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
