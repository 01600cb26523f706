"""Arithmetic as people write it, made by hypothesis, and worked out by Python's own parser and fractions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction

from hypothesis import strategies as st

_DO: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LARGEST = 10**300


class TooLarge(Exception):
    """Raised when a value, or one on the way to it, has more digits than the tests want."""


def worth(text: str) -> Fraction:
    """The value of an expression: Python reads it, each literal is an exact fraction.

    Raises:
        ZeroDivisionError: it has none.
        TooLarge: nobody should have to write it.
    """

    def of(term: ast.expr) -> Fraction:
        match term:
            case ast.Constant():
                return Fraction(ast.get_source_segment(text, term) or "")
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -of(inner)
            case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                return of(inner)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return bounded(power(of(left), of(right)))
            case ast.BinOp(left=left, op=op, right=right):
                return bounded(_DO[type(op)](of(left), of(right)))
            case _:
                raise AssertionError(f"{text!r} holds {ast.dump(term)}")

    return of(ast.parse(text.strip(), mode="eval").body)


def power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > 300:
        raise TooLarge  # a root has no exact value, and the rest is of no use here
    found: Fraction = base**exponent.numerator  # type: ignore[assignment]
    return found


def bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) > LARGEST:
        raise TooLarge
    return value


_digits = st.integers(0, 99_999).map(str)
_decimal = st.from_regex(r"\A[0-9]{1,4}\.[0-9]{1,4}\Z")
_numbers = st.one_of(_digits, _digits, _decimal)
_spaces = st.sampled_from(["", " ", "  "])


@st.composite
def _binary(draw: st.DrawFn, inner: st.SearchStrategy[str], signs: str) -> str:
    sign = draw(st.sampled_from(signs.split()))
    left, right = draw(inner), draw(inner)
    # Without spaces 1000-10-5 is a date.
    space = " " if sign == "-" else draw(_spaces)
    return f"{left}{space}{sign}{space}{right}"


@st.composite
def _power(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    base = draw(st.one_of(st.integers(0, 12).map(str), inner.map(lambda text: f"({text})")))
    return f"{base}{draw(_spaces)}**{draw(_spaces)}{draw(st.integers(-3, 5))}"


def expressions(
    signs: str = "+ - * /", *, powers: bool = True, decimals: bool = True, negatives: bool = True
) -> st.SearchStrategy[str]:
    """Expressions with these signs, parentheses, signs before numbers, and spaces anywhere."""

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        forms = [
            _binary(inner, signs),
            _binary(inner, signs),
            inner.map(lambda text: f"({text})"),
        ]
        if negatives:
            forms += [inner.map(lambda text: f"-({text})"), inner.map(lambda text: f"( -{text} )")]
        if powers:
            forms.append(_power(inner))
        return st.one_of(*forms)

    return _binary(st.recursive(_numbers if decimals else _digits, grown, max_leaves=8), signs)
