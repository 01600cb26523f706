"""The group `arithmetic`: harmless, exact where floating point allows, bounded."""

from __future__ import annotations

from decimal import Context as Precision
from decimal import Decimal
from fractions import Fraction
from time import process_time
from typing import Any

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator import Toolbox, ToolResult
from orchestrator.tools import tools_from_ref

TOOLS = Toolbox(*tools_from_ref("arithmetic"))


def call(name: str, a: Any, b: Any) -> ToolResult:
    tool = TOOLS.get(name)
    assert tool is not None
    return anyio.run(lambda: tool.invoke(tool.validate({"a": a, "b": b})))


def test_its_tools_do_no_harm_and_may_be_called_again() -> None:
    assert [tool.name for tool in TOOLS] == ["add", "subtract", "multiply", "divide", "power"]
    assert {(tool.risk, tool.effect, tool.group) for tool in TOOLS} == {("none", "pure", "arithmetic")}
    for tool in TOOLS:
        assert tool.parameters["required"] == ["a", "b"]
        for schema in tool.parameters["properties"].values():  # type: ignore[union-attr, call-overload]
            assert schema["type"] == "number"
            assert schema["description"]


@given(st.sampled_from(["add", "subtract", "multiply"]), st.integers(), st.integers())
def test_whole_numbers_stay_whole_and_exact(name: str, a: int, b: int) -> None:
    assert call(name, a, b).output == {"add": a + b, "subtract": a - b, "multiply": a * b}[name]


CENTS = st.decimals(-10_000, 10_000, places=2)


@given(st.sampled_from(["add", "subtract", "multiply"]), CENTS, CENTS)
def test_decimals_are_what_is_written(name: str, a: Decimal, b: Decimal) -> None:
    found = call(name, float(a), float(b)).output
    exact = {"add": a + b, "subtract": a - b, "multiply": a * b}[name]
    assert found == float(exact)
    assert isinstance(found, int) == (exact == int(exact))


@given(st.integers(-(10**12), 10**12), st.integers(-(10**6), 10**6))
def test_division(a: int, b: int) -> None:
    assume(b)
    found = call("divide", a, b).output
    if a % b == 0:
        assert found == a // b
        assert isinstance(found, int)
    else:
        assert found == float(Precision(prec=28).divide(Decimal(a), Decimal(b)))


@given(st.integers(-20, 20), st.integers(-10, 10))
def test_powers(a: int, b: int) -> None:
    assume(a or b >= 0)
    found = call("power", a, b).output
    assert isinstance(found, int | float)
    exact = Fraction(a) ** b
    assert found == (exact.numerator if exact.denominator == 1 else pytest.approx(float(exact), rel=1e-12))


@pytest.mark.parametrize(
    ("name", "a", "b", "output"),
    [
        ("add", 0.1, 0.2, 0.3),
        ("add", 0.5, 0.5, 1),
        ("subtract", 0.3, 0.1, 0.2),
        ("multiply", 1.1, 3, 3.3),
        ("divide", 1, 4, 0.25),
        ("divide", 0.3, 0.1, 3),
        ("power", 2, 0.5, 1.4142135623730951),
        ("power", 0, 0, 1),
        ("power", 2.5, 2, 6.25),
        ("add", "1", "2", 3),
    ],
)
def test_examples(name: str, a: object, b: object, output: object) -> None:
    found = call(name, a, b).output
    assert (found, type(found)) == (output, type(output))


@pytest.mark.parametrize(
    ("name", "a", "b", "error"),
    [
        ("divide", 1, 0, "1 cannot be divided by zero"),
        ("divide", 0.5, 0.0, "0.5 cannot be divided by zero"),
        ("power", 0, -1, "zero has no negative power"),
        ("power", -8, 0.5, "is not a real number"),
        ("power", 9, 9**9, "too many digits"),
        ("power", 10**500, 10**500, "too many digits"),
        ("power", 2, 10**9, "too many digits"),
        ("power", 1.5, 10**9, "too large"),
        ("multiply", 10**900, 10**900, "more than 1000 digits"),
        ("multiply", 1e300, 1e300, "too large"),
        ("add", 8.988465674311579e307, 8.98846567431158e307, "too large"),
    ],
)
def test_what_has_no_value_or_none_that_fits_is_an_error_and_comes_at_once(
    name: str, a: float, b: float, error: str
) -> None:
    began = process_time()
    found = call(name, a, b)
    assert process_time() - began < 10  # well under; unbounded it would not end at all
    assert (found.exit_code, found.metadata) == (1, {})  # meant, not a bug
    assert error in str(found.error)


@given(
    st.sampled_from(["add", "subtract", "multiply", "divide", "power"]),
    *[st.integers() | st.floats(allow_nan=False, allow_infinity=False)] * 2,
)
def test_whatever_the_numbers_there_is_a_number_or_an_error_that_is_meant(name: str, a: float, b: float) -> None:
    found = call(name, a, b)
    assert "exception" not in found.metadata
    assert found.failed or (isinstance(found.output, int | float) and not isinstance(found.output, bool))
