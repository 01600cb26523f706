"""All frozen texts, by name."""

from __future__ import annotations

from tests.frozen.contract import contract
from tests.frozen.drawings import drawings, graphs, layouts, pages
from tests.frozen.generated import generated
from tests.frozen.helps import helps
from tests.frozen.live import live
from tests.frozen.messages import checks, errors_
from tests.frozen.rules import rules
from tests.frozen.strategies import strategies
from tests.frozen.terminal import stores, terminal
from tests.frozen.texts import Maker, joined

TEXTS: dict[str, Maker] = {
    "journals-contract": contract,
    "journals-rules": rules,
    "journals-strategies": strategies,
    "live": live,
    "drawings": drawings,
    "layouts": layouts,
    "pages": pages,
    "graphs": graphs,
    "helps": helps,
    "terminal": terminal,
    "stores": stores,
    "checks": checks,
    "errors": errors_,
    "journals-generated": generated,
}

READABLE = {"journals-generated": 60}
"""How many sections are kept as text, where the others are only more of their kind."""


def made(name: str) -> str:
    """The text as the code makes it now, in the form in which it is kept."""
    return joined(TEXTS[name](), READABLE.get(name))
