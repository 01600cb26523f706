"""Words as the indexes of runs and items hold them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from orchestrator.stores.words import words

_LONGEST = 200
"""Bytes of a word that is in an index as it is: an entry of one has 2,700 bytes at most."""


def key_of(word: str) -> str:
    """What stands for a word of `stores.words` in an index."""
    if len(word) * 4 <= _LONGEST:
        return word
    data = word.encode()
    # the sign is in no word, so no word stands for another one
    return word if len(data) <= _LONGEST else f"#{blake2b(data, digest_size=32).hexdigest()}"


def keys_of(texts: Iterable[str]) -> list[str]:
    """The keys of the different words of some texts, sorted."""
    return sorted({key_of(word) for word in words(" ".join(texts))})
