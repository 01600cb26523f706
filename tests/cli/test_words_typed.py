"""What a command takes as it was typed is what typer makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from orchestrator.cli.app import _taken, application

TYPED = (
    "x", "", "a b", "é", "\udc80", "-1", "0", "1", "7", "007", "+7", " 1", "1_0", "٣", "1.5", "999", "1000", "1001",
    "65535", "65536", "999999999", "99999999999", "true", "2026-11-23",
)  # fmt: skip


def parameters(command: Any) -> Iterator[Any]:
    for inner in getattr(command, "commands", {}).values():
        yield from parameters(inner)
    yield from command.params


EVERY = {
    (
        str(one.type_descriptor.annotation),
        one.type_descriptor.parameter_info.min,
        one.type_descriptor.parameter_info.max,
    ): one
    for one in parameters(get_command(application()))
}


@pytest.mark.parametrize("text", TYPED)
@pytest.mark.parametrize("parameter", EVERY.values(), ids=map(str, EVERY))
def test_what_is_taken_is_what_typer_makes_of_it(parameter: Any, text: str) -> None:
    typed: Any = (text, "b") if parameter.multiple or parameter.nargs == -1 else text
    found = _taken(parameter.type_descriptor, typed)
    if found is not None:
        made = parameter.get_runtime_param().coerce(typed, param=parameter, ctx=None)
        assert (type(found), found) == (type(made), made)


def test_most_words_are_taken() -> None:
    taken = {
        key[0] for key, one in EVERY.items() if _taken(one.type_descriptor, ("1",) if one.multiple else "1") is not None
    }
    assert {"<class 'str'>", "<class 'int'>"} <= taken
