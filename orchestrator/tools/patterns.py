"""Patterns of schemas, tried by an engine that takes time in proportion to the text, whatever the pattern is.

It is the one that pydantic has, Rust's `regex`. It knows no look-around and no references back, which no engine can try
in linear time. JSON Schema wants patterns to be read as ECMA-262 writes them; in what both know they agree, also where
Python differs: `$` is the end of the text, and no end of a line before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

log = logging.getLogger("orchestrator")

LONGEST = 500
"""Characters of a pattern that is tried."""


@lru_cache(maxsize=256)
def linear(pattern: str) -> Callable[[str], bool] | None:
    """Whether a text matches, as a function; None, and said once in the log, if the engine cannot try the pattern."""
    if len(pattern) <= LONGEST:
        try:
            return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
        except SchemaError:
            pass
    log.warning("the pattern %.80r of a schema is not checked: matching it may take more than linear time", pattern)
    return None
