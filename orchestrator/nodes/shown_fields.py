"""State fields as a question shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

_anything: TypeAdapter[Any] = TypeAdapter(Any)


def plain(values: Mapping[str, object]) -> dict[str, Any]:
    """The values as plain JSON."""
    found: dict[str, object] = _anything.dump_python(dict(values), mode="json")
    return found
