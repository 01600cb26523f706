"""The protocol of archives, the names of their objects, and opening an archive by its URL."""

from __future__ import annotations

import os
import time
from pathlib import Path
from string import ascii_letters, digits
from typing import Protocol, runtime_checkable
from urllib.parse import parse_qsl, unquote, urlsplit

from orchestrator.distribution import install
from orchestrator.errors import StoreError

_LETTERS = frozenset(ascii_letters + digits + "_-")
_LONGEST = 200
_LONGEST_TIMEOUT = 3600
_FORMS = "write `file:///var/archive`, or `s3://BUCKET/PREFIX` for an S3 server"
_READABLE = 60
"""Characters of a run's id in the name of its object."""


@runtime_checkable
class Archive(Protocol):
    """Objects by name. Methods block; stores call them in threads, several at a time.

    Each raises `StoreUnavailable` if the place cannot be reached or written, and `StoreError` if it is misconfigured.
    """

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        ...

    @property
    def gzip(self) -> bool:
        """Whether objects are compressed."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write an object, in place of one of this name, so that others see it whole or not at all. It is durable then.

        Args:
            name: `YYYY/MM/DD/` and a file name.
            data: its bytes.
        """
        ...

    def get(self, name: str, *, most: int) -> bytes | None:
        """Return the bytes of an object; None: there is none of this name.

        Args:
            name: its name.
            most: bytes that it should have at most. Of a longer one, the first `most` + 1 bytes are enough.
        """
        ...

    def remove(self, name: str) -> None:
        """Delete an object. One that is not there is deleted."""
        ...


def open_archive(url: str) -> Archive:
    """Open an archive by its URL. Nothing is read or written yet.

    Args:
        url: `file:///var/archive`, or the path of a folder, or `s3://BUCKET/PREFIX`. Parameters: `gzip=1` compresses
            the objects; for S3 `endpoint` (the URL of a server that is not Amazon's) and `region`. Keys are read from
            the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, or what else boto3 finds), never from the
            URL. `timeout`: seconds that a server may be silent.

    Raises:
        StoreError: the URL has an unknown form, or a library is missing.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise StoreError(f"archive URL cannot be read; {_FORMS}") from None
    options = dict(parse_qsl(parts.query)) if "://" in url else {}
    gzip = options.pop("gzip", "0") == "1"
    if "://" not in url or parts.scheme == "file":
        from orchestrator.stores.archive.folder import FolderArchive

        if parts.netloc or options or not (parts.path or "://" not in url):
            raise StoreError("archive URL file://...: write `file:///var/archive`, or `file:///var/archive?gzip=1`")
        folder = Path(unquote(parts.path) if "://" in url else url).absolute()
        return FolderArchive(folder, gzip=gzip)
    if parts.scheme == "s3":
        region, endpoint = options.pop("region", None), options.pop("endpoint", None)
        timeout = _seconds(options.pop("timeout", "60"))
        if "@" in parts.netloc or "@" in (endpoint or ""):
            raise StoreError("archive URL s3://...: keys are not read from it; set AWS_ACCESS_KEY_ID and the like")
        if not parts.hostname or options:
            unknown = f" (it has no parameter {', '.join(map(repr, options))})" if options else ""
            raise StoreError(f"archive URL s3://...: write `s3://BUCKET/PREFIX?region=...&endpoint=...`{unknown}")
        try:
            from orchestrator.stores.archive.s3 import S3Archive
        except ImportError as error:
            raise StoreError(f"an archive in S3 needs boto3 ({error}); install it with `{install('s3')}`") from error
        prefix = parts.path.strip("/")
        return S3Archive(parts.netloc, prefix, endpoint=endpoint, region=region, gzip=gzip, timeout=timeout)
    raise StoreError(f"archive URL {parts.scheme}://...: {_FORMS}")


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= _LONGEST_TIMEOUT:
        raise StoreError(f"archive URL s3://...: `timeout` is more than 0 seconds, and at most {_LONGEST_TIMEOUT}")
    return found


def new_name(run_id: str, head: int, created: float, *, gzip: bool) -> str:
    """A name for an object, which no other one has: the day when the run was created, its id, and its last record."""
    day = time.strftime("%Y/%m/%d", time.gmtime(min(max(created, 0.0), 253_402_300_799.0)))
    readable = "".join(one if one in _LETTERS else "_" for one in run_id[:_READABLE]) or "_"
    return f"{day}/{readable}.{head}.{os.urandom(8).hex()}.jsonl{'.gz' if gzip else ''}"


def is_name(name: str) -> bool:
    """Whether a name is one that `new_name` makes: what a store says must not lead out of the archive."""
    if len(name) > _LONGEST or name.count("/") != 3:
        return False
    *day, file = name.split("/")
    dated = [len(one) for one in day] == [4, 2, 2] and all(_LETTERS.issuperset(one) for one in day)
    return dated and _LETTERS.issuperset(file.replace(".", "")) and not file.startswith(".") and bool(file)
