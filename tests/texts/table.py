"""Model replies and their right readings, one YAML file per kind, written without sight of the code that reads them."""

from pathlib import Path
from typing import Any

import yaml

KINDS = ("numbers", "actions", "plans", "rewoo", "inputs", "endings")


def read(kind: str) -> dict[str, Any]:
    """One file of the table, as data."""
    path = Path(__file__).parent / f"{kind}.yaml"
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


def rows(kind: str) -> list[dict[str, Any]]:
    """The rows of one kind, in order."""
    return list(read(kind)["rows"])
