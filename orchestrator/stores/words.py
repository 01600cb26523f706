"""The words of a text, as `Store.runs(search=)` compares them: the same in every store."""

from __future__ import annotations

import unicodedata


def words(text: str) -> list[str]:
    """The words of a text: sequences of letters and digits, without regard to case and diacritics."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    kept = (
        "" if unicodedata.combining(sign) else sign if unicodedata.category(sign)[0] in "LN" else " " for sign in plain
    )
    return "".join(kept).split()


def contains(wanted: list[str], *texts: str) -> bool:
    """Whether all of these words occur in these texts; no words occur in none."""
    found = {word for text in texts for word in words(text)}
    return bool(wanted) and found.issuperset(wanted)
