"""Arithmetic expressions as trees: their value, the operation that comes first, their text.

Numbers are exact fractions, so 0.1 + 0.2 is 0.3 and whole numbers stay whole; only a root of a number is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Literal, TypeAlias

OperationName: TypeAlias = Literal["add", "subtract", "multiply", "divide", "power"]

SIGNS: dict[OperationName, str] = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}
_BINDS: dict[OperationName, int] = {"add": 1, "subtract": 1, "multiply": 2, "divide": 2, "power": 4}
_NEGATIVE = 3
_DIGITS = 1000
"""Digits of the longest number that is worked with."""
_SHOWN = 12
"""Significant digits of a fraction in an answer."""


class Unanswerable(Exception):
    """Raised when an expression has no value; the message says why, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Operation:
    """Two terms and what is done with them."""

    name: OperationName
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Negative:
    """A term with a minus before it."""

    inner: Term


Term: TypeAlias = Number | Operation | Negative


def negative(term: Term) -> Term:
    """A term with a minus before it; that of a number is a number."""
    return Number(-term.value) if isinstance(term, Number) else Negative(term)


def value_of(term: Term) -> Fraction:
    """What a term comes to.

    Raises:
        Unanswerable: it divides by zero, is too large, or is not a real number.
    """
    if isinstance(term, Number):
        return term.value
    if isinstance(term, Negative):
        return -value_of(term.inner)
    found = _operations[term.name](value_of(term.left), value_of(term.right))
    if max(abs(found.numerator), found.denominator).bit_length() > _DIGITS * 10 / 3:
        raise Unanswerable(f"the result has more than {_DIGITS} digits")
    return found


def _divide(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise Unanswerable(f"{exact(left)} / 0 has no value: nothing can be divided by zero")
    return left / right


def _power(left: Fraction, right: Fraction) -> Fraction:
    if left == 0 and right < 0:
        raise Unanswerable(f"0 ** {exact(right)} has no value: nothing can be divided by zero")
    if right.denominator == 1:
        size = max(abs(left.numerator), left.denominator).bit_length() - 1
        if size * abs(right) > _DIGITS * 10 / 3:
            raise Unanswerable(f"{exact(left)} ** {exact(right)} has more than {_DIGITS} digits")
        return left**right.numerator
    if left < 0:
        raise Unanswerable(f"({exact(left)}) ** {exact(right)} is not a real number")
    try:
        return Fraction(str(float(left) ** float(right)))
    except (OverflowError, ValueError):
        raise Unanswerable(f"{exact(left)} ** {exact(right)} is too large") from None


_operations: dict[OperationName, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda left, right: left + right,
    "subtract": lambda left, right: left - right,
    "multiply": lambda left, right: left * right,
    "divide": _divide,
    "power": _power,
}


# -- working on a part -------------------------------------------------------------------------------------------


def ready(term: Term) -> Iterator[Operation]:
    """The operations on plain numbers in a term, in the order in which they are worked out."""
    if isinstance(term, Negative):
        yield from ready(term.inner)
    elif isinstance(term, Operation):
        if isinstance(term.left, Number) and isinstance(term.right, Number):
            yield term
        else:
            yield from ready(term.left)
            yield from ready(term.right)


def first_operation(term: Term) -> Operation | None:
    """The operation that is worked out first; None if there is none left."""
    return next(ready(term), None)


def contains(term: Term, part: Term) -> bool:
    """Whether a term is, or holds, another."""
    if term == part:
        return True
    if isinstance(term, Negative):
        return contains(term.inner, part)
    return isinstance(term, Operation) and (contains(term.left, part) or contains(term.right, part))


def replaced(term: Term, part: Term, by: Number) -> Term:
    """The term with the first occurrence of a part replaced by a number."""
    if term == part:
        return by
    if isinstance(term, Negative):
        return negative(replaced(term.inner, part, by))
    if isinstance(term, Operation):
        if contains(term.left, part):
            return Operation(term.name, replaced(term.left, part, by), term.right)
        return Operation(term.name, term.left, replaced(term.right, part, by))
    return term


def advanced(term: Term, asked: Term | None, found: Fraction) -> Term:
    """The term after somebody worked on it and found a number.

    Args:
        asked: what the number was found for: the whole term or a part of it. A tool may have worked out all of it or
            just the operation that comes first; the number tells which. A number that is neither is believed to be
            of the first operation.
    """
    place = asked if asked is not None and contains(term, asked) else term
    first = first_operation(place)
    if first is None:
        return term
    try:
        whole = value_of(place)
    except Unanswerable:
        return replaced(term, first, Number(found))
    return replaced(term, place if near(found, whole) else first, Number(found))


def near(one: Fraction, other: Fraction) -> bool:
    """Whether two numbers are the same but for the rounding of floating point; whole ones are not rounded."""
    if one.denominator == other.denominator == 1 and max(abs(one), abs(other)) < 2**53:
        return one == other
    return abs(one - other) <= abs(other) * Fraction(1, 10**9)


# -- text --------------------------------------------------------------------------------------------------------


def written(term: Term) -> str:
    """A term as text, with the parentheses that it needs: `20 + 2 * 4`."""
    return _written(term, 0)


def _written(term: Term, outer: int) -> str:
    if isinstance(term, Number):
        text = exact(term.value)
        return f"({text})" if term.value < 0 and outer > 0 else text
    if isinstance(term, Negative):
        text = f"-{_written(term.inner, _NEGATIVE)}"
        return f"({text})" if outer > 0 else text
    binds = _BINDS[term.name]
    # A power binds to the right, all others to the left; the other side needs parentheses.
    left = _written(term.left, binds + 1 if term.name == "power" else _left(term.left, binds))
    right = _written(term.right, binds if term.name == "power" else binds + 1)
    text = f"{left} {SIGNS[term.name]} {right}"
    return f"({text})" if binds < outer else text


def _left(term: Term, binds: int) -> int:
    """A negative number at the very left of a sum or product needs no parentheses."""
    return 0 if isinstance(term, Number) else binds


def shown(value: Fraction) -> str:
    """A number as an answer gives it: whole ones in full, others with 12 significant digits."""
    return exact(value, _SHOWN)


def exact(value: Fraction, digits: int = 30) -> str:
    """A number as it goes on being worked with: with up to 30 significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    found = Context(prec=digits).divide(Decimal(value.numerator), Decimal(value.denominator)).normalize()
    # normalize() writes 100 as 1E+2; plain notation unless that would be mostly zeros.
    return format(found, "f") if -digits - 3 <= found.adjusted() <= digits else str(found).replace("E", "e")
