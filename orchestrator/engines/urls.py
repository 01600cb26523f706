"""Engines by their URLs. The module of an engine, and its package, is imported for a URL of its scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.errors import InvalidValue

if TYPE_CHECKING:
    from orchestrator.engines.base import ServedEngine

SCHEMES = ("restate", "temporal")
"""The schemes of URLs of engines."""


def engine_at(url: str) -> ServedEngine:
    """Return the engine of a URL. Nothing is asked of it yet.

    Args:
        url: such as `restate://127.0.0.1:8080`; each engine has its parameters, see docs/engines.md.

    Raises:
        InvalidValue: it is no URL of an engine, or one of its parameters is wrong.
        ImportError: the engine's extra is not installed.
    """
    before, sign, _ = url.partition("://")
    scheme = before.lower() if sign else ""
    if scheme == "restate":
        from orchestrator.engines.restate import RestateEngine

        return RestateEngine(url)
    if scheme == "temporal":
        from orchestrator.engines.temporal import TemporalEngine

        return TemporalEngine(url)
    known = ", ".join(f"{one}://HOST:PORT" for one in SCHEMES)
    raise InvalidValue(f"{scheme or 'no scheme'!r} is not the scheme of an engine: use {known}", where="engine")
