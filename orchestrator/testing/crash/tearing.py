"""Tearing the last write to an SQLite file: what a power failure may leave of a transaction nobody was told of.

The log (https://sqlite.org/fileformat2.html#walformat) is a header of 32 bytes and frames, each a header of 24 bytes
and a page. A transaction ends with a frame that says how many pages the file has then. Frames that are left from
before the log was begun anew have other salts than its header.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

_HEADER, _FRAME = 32, 24


def log_of(file: Path) -> Path:
    """Where the latest transactions of a file are."""
    return file.with_name(f"{file.name}-wal")


def last_write(log: bytes) -> tuple[int, int]:
    """Where the last transaction of a log begins and ends; the first one of a log includes the log's header.

    Raises:
        ValueError: there is none.
    """
    size = _FRAME + int.from_bytes(log[8:12])
    ends = [0]
    for place in range(_HEADER, len(log) - size + 1, size):
        if log[place + 8 : place + 16] != log[16:24]:
            break
        if any(log[place + 4 : place + 8]):
            ends.append(place + size)
    if len(ends) == 1:
        raise ValueError("the log is empty")
    return ends[-2], ends[-1]


def before_and_after(file: Path) -> tuple[Path, Path]:
    """Copies, beside a file, of how it was before its last transaction, and of how it is."""
    log = log_of(file).read_bytes()
    before, after = file.with_name(f"before-{file.name}"), file.with_name(f"after-{file.name}")
    for copy, end in ((before, last_write(log)[0]), (after, len(log))):
        shutil.copy(file, copy)
        log_of(copy).write_bytes(log[:end])
    return before, after


def tear(file: Path, chance: random.Random) -> str:
    """Lose or garble a drawn part of the last transaction. Gives in words what was done."""
    log = log_of(file).read_bytes()
    begin, end = last_write(log)
    first = chance.randrange(begin, end)
    last = chance.randrange(first, end)
    way = chance.choice(("cut", "zeros", "noise"))
    if way == "cut":
        log_of(file).write_bytes(log[:first])
        return f"the log cut at byte {first} of {begin} to {end}"
    lost = chance.randbytes(last + 1 - first) if way == "noise" else bytes(last + 1 - first)
    log_of(file).write_bytes(log[:first] + lost + log[last + 1 :])
    return f"{way} in bytes {first} to {last} of {begin} to {end}"
