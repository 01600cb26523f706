"""Context windows and prices of models by name, from the data set of the package `genai-prices`.

The package comes with the extra `prices`; without it no model is known. Its data set is read as it was installed: this
library never updates it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from orchestrator.models.prices import Price


class Known(NamedTuple):
    """The facts about a model: None for those that are not known."""

    window: int | None = None
    """Tokens of the context window."""
    price: Price | None = None
    """The price in US dollars. For a model whose price depends on the length of the request, that of short requests."""


@cache
def known(name: str, base_url: str | None) -> Known:
    """Return the facts about a model of a provider.

    Args:
        name: the provider's name of the model.
        base_url: the provider's server; None for OpenAI's. Models of other servers, such as local ones, are unknown.
    """
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return Known()
    try:
        _, model = get_snapshot().find_provider_model(name, None, None, base_url or "https://api.openai.com/v1")
    except LookupError:
        return Known()
    prices = model.get_prices(datetime.now(UTC))
    paid = {field: _per_million(getattr(prices, named, None)) for field, named in _FIELDS.items()}
    whole = paid["input"] is not None and paid["output"] is not None
    return Known(model.context_window, Price.model_validate(paid) if whole else None)


_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached_input": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


def _per_million(price: Any) -> float | None:
    base = getattr(price, "base", price)  # of tiers, the first
    return float(base) if isinstance(base, Decimal | int | float) else None
