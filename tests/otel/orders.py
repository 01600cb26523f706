"""The application of docs/examples/traces."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

PLACE = Path(__file__).parents[2] / "docs" / "examples" / "traces"


def orders() -> ModuleType:
    """The module with the graph and the app."""
    spec = importlib.util.spec_from_file_location("examples_orders", PLACE / "orders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
