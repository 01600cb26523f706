"""Ids that follow from their causes, so that every order of events gives the same ones."""

from __future__ import annotations

from hashlib import blake2b


def hash_id(*parts: str) -> str:
    """A hash of the parts and their order: 64 bits, in hex."""
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
