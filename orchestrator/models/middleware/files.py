"""Files that are whole at any moment, whoever reads them and whatever ends the process."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file beside its place and move it there: others see the old one or the new one.

    Args:
        mode: of a file made anew, less what the umask takes.
    """
    place = path.resolve()  # a link goes on pointing where it points
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(made, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        draft.replace(place)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
