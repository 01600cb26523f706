"""Where the records of an archived run are. Errors name it, too."""

from __future__ import annotations

from dataclasses import dataclass


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
