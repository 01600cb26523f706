"""Where the records of an archived run are. Errors name it, too."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class Archived:
    """Which object of an archive has the records of a run; see `orchestrator.stores.archive`."""

    archive: str
    """The URL of the archive when the object was written."""
    name: str
    """The object's name in it."""
    sha256: str
    """The digest of the object's bytes, in hexadecimal digits."""
    size: int
    """Bytes of the object."""
    at: float
    """When it was written, Unix seconds."""

    def line(self) -> str:
        """Where the records are, on one line."""
        return f"{self.place}, object {self.name} ({self.size:,} bytes)"

    def to_json(self) -> dict[str, object]:
        """The same as plain JSON, as commands and the web API answer it."""
        return {"archive": self.place, "name": self.name, "sha256": self.sha256, "size": self.size, "at": self.at}

    @property
    def place(self) -> str:
        """The URL of the archive, as people are shown it: a place of somebody's own might have a password in it."""
        try:
            parts = urlsplit(self.archive)
        except ValueError:
            return "an archive whose URL cannot be read"
        host = parts.netloc.rpartition("@")[2]
        return self.archive if host == parts.netloc else urlunsplit(parts._replace(netloc=f"***@{host}"))
