"""Arithmetic on two numbers. Whole numbers stay whole; decimals are exact as written, so 0.1 + 0.2 is 0.3."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, TypeAlias

from pydantic import WithJsonSchema

from orchestrator.errors import ToolError
from orchestrator.tools.function import tool

Number: TypeAlias = Annotated[int | float, WithJsonSchema({"type": "number"})]

_DIGITS = 1000
"""Digits of the longest whole number that is returned."""
_context = decimal.Context(
    prec=28, Emax=308, Emin=-308, traps=[decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow]
)


@tool(risk="none", effect="pure", group="arithmetic")
def add(a: Number, b: Number) -> Number:
    """Add two numbers.

    Args:
        a: The first number.
        b: The number to add to it.
    """
    return _exact(lambda x, y: x + y, _context.add, a, b)


@tool(risk="none", effect="pure", group="arithmetic")
def subtract(a: Number, b: Number) -> Number:
    """Subtract one number from another.

    Args:
        a: The number to subtract from.
        b: The number to subtract.
    """
    return _exact(lambda x, y: x - y, _context.subtract, a, b)


@tool(risk="none", effect="pure", group="arithmetic")
def multiply(a: Number, b: Number) -> Number:
    """Multiply two numbers.

    Args:
        a: The first factor.
        b: The second factor.
    """
    return _exact(lambda x, y: x * y, _context.multiply, a, b)


@tool(risk="none", effect="pure", group="arithmetic")
def divide(a: Number, b: Number) -> Number:
    """Divide one number by another.

    Args:
        a: The number to divide.
        b: The number to divide by; not zero.
    """
    if b == 0:
        raise ToolError(f"{a} cannot be divided by zero")
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return _decimal(_context.divide, a, b)


@tool(risk="none", effect="pure", group="arithmetic")
def power(a: Number, b: Number) -> Number:
    """Raise one number to the power of another.

    Args:
        a: The base.
        b: The exponent.
    """
    if a == 0 and b < 0:
        raise ToolError("zero has no negative power: that would divide by zero")
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        if abs(a) > 1 and b * len(str(abs(a))) > _DIGITS * 2:
            raise ToolError(f"{a} to the power of {b} has too many digits")
        return _short(a**b)
    if a < 0 and b != int(b):
        raise ToolError(f"{a} to the power of {b} is not a real number")
    return _decimal(_context.power, a, b)


def _exact(
    whole: Callable[[int, int], int], broken: Callable[[Decimal, Decimal], Decimal], a: Number, b: Number
) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return _short(whole(a, b))
    return _decimal(broken, a, b)


def _short(value: int) -> int:
    if value.bit_length() > _DIGITS * 3.33:
        raise ToolError(f"the result has more than {_DIGITS} digits")
    return value


def _decimal(operation: Callable[[Decimal, Decimal], Decimal], a: Number, b: Number) -> Number:
    """Calculate with decimals as they are written, to 28 digits, and return the nearest float."""
    try:
        found = operation(Decimal(str(a)), Decimal(str(b)))
    except decimal.Overflow:
        raise ToolError("the result is too large") from None
    except decimal.InvalidOperation:
        raise ToolError("the result is not a number") from None
    near = float(found)
    if math.isinf(near):  # the range of decimals is slightly larger than that of floats
        raise ToolError("the result is too large")
    return int(near) if near.is_integer() and abs(near) < 2**53 else near
