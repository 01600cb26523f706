"""Plain values are passed over where secrets, numbers without an end and sets are looked for: with the same result."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from pydantic_core import to_jsonable_python

from orchestrator.errors import SecretInState
from orchestrator.graph import codec
from orchestrator.graph.codec import ordered, refuse_secrets
from orchestrator.values import Unfit

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
leaves = (
    scalars | st.floats() | st.frozensets(st.integers() | st.text(max_size=3), max_size=4) | st.just(SecretStr("s"))
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=4)
    ),
    max_leaves=20,
)


def looked_at(value: object) -> tuple[object, object]:
    """What is said of a value, and its form."""
    said = form = None
    try:
        refuse_secrets(value, finite=True)
    except (SecretInState, Unfit) as error:
        said = type(error), str(error)
    try:
        form = ordered(value, to_jsonable_python(value, inf_nan_mode="null"))
    except Unfit as error:
        form = str(error)
    return said, form


@given(values)
def test_plain_values_are_passed_over_with_the_same_result(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_PLAIN", frozenset())
        expected = looked_at(value)
    assert looked_at(value) == expected


@pytest.mark.parametrize("value", [[1, {"a": SecretStr("s")}], {"a": [SecretStr("s")]}, SecretStr("s")])
def test_a_secret_among_plain_values_is_found(value: object) -> None:
    with pytest.raises(SecretInState):
        refuse_secrets(value)


@pytest.mark.parametrize("value", [[1, math.nan], {"a": (1, math.inf)}])
def test_a_number_without_an_end_among_plain_values_is_found(value: object) -> None:
    with pytest.raises(Unfit):
        refuse_secrets(value, finite=True)
