"""Archives: where the records of ended runs are kept, as JSON Lines, in a folder or in a bucket by the S3 protocol.

    store = open_store("sqlite:///runs.db", archive="file:///var/archive")
    store = open_store("postgresql://db.example.org/runs", archive="s3://bucket/runs")      # extra `s3`

`Archive` is the protocol. docs/archive.md describes the layout and the objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator._lazy import lazy_names

if TYPE_CHECKING:
    from orchestrator.stores.archive.base import Archive, open_archive
    from orchestrator.stores.archive.store import ArchivedStore

_HOMES = {
    "orchestrator.stores.archive.base": ("Archive", "open_archive"),
    "orchestrator.stores.archive.store": ("ArchivedStore",),
}

__all__ = ["Archive", "ArchivedStore", "open_archive"]

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and reports all others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
