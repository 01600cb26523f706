"""Prices of a shop."""


def total(prices: list[float], discount: float = 0) -> float:
    """Add up prices, less a discount in percent."""
    return sum(prices) * discount / 100
