"""Options of the functions that build graphs, as in `tool_user?max_steps=5`; `--set` adds them to a reference.

They are a part of the reference, which is stored with the run, so the run is resumed and replayed with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl, quote, urlencode

from orchestrator.cli.exits import UsageError

if TYPE_CHECKING:
    from orchestrator.graph_class import Graph


def parted(ref: str) -> tuple[str, dict[str, str]]:
    """Return the reference of a graph without its options, and the options as they were typed."""
    at = ref.find("?")
    while at > 0:
        name, equals, _ = ref[at + 1 :].partition("=")
        if equals and name.isidentifier():
            return ref[:at], dict(parse_qsl(ref[at + 1 :], keep_blank_values=True))
        at = ref.find("?", at + 1)
    return ref, {}


def with_options(ref: str, given: Sequence[str] | None) -> str:
    """Return the reference of a graph with the options of `--set NAME=VALUE ...`.

    Raises:
        UsageError: a value of `--set` has no name.
    """
    place, options = parted(ref)
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--set {one}: use the form NAME=VALUE")
        options[name] = value
    return f"{place}?{urlencode(sorted(options.items()), quote_via=quote)}" if options else ref


def build(function: Callable[..., object], ref: str, options: Mapping[str, str]) -> object:
    """Call a function that builds a graph.

    Args:
        function: the function.
        ref: its reference, for messages.
        options: values for its parameters, each read as the type of its parameter.

    Raises:
        UsageError: it has no such parameter, a value does not fit, or a required one is missing.
    """
    from orchestrator.spelling import unknown_field

    parameters, values, faults = dict(_parameters(function)), dict[str, object](), list[str]()
    for name, text in options.items():
        if name not in parameters:
            faults.append(f"--set {name}: {ref} {unknown_field(name, parameters or ('no options',))}")
            continue
        try:
            values[name] = _value(parameters[name], text)
        except ValueError as error:
            faults.append(f"--set {name}={text}: {error}")
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in options]
    if missing:
        faults.append(f"{ref} needs {' '.join(f'--set {name}=VALUE' for name in missing)}")
    if faults:
        raise UsageError("; ".join(faults))
    return function(**values)


def _parameters(function: Callable[..., object]) -> Iterator[tuple[str, inspect.Parameter]]:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # an annotation that is imported for type checkers only
        signature = inspect.signature(function)
    for name, one in signature.parameters.items():
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            yield name, one


def _value(parameter: inspect.Parameter, text: str) -> object:
    """Return a text as a value of the parameter's type: as it stands if that fits, else as JSON.

    `null` is read as None if the type allows it; so is `None`, unless it is valid as another of the types. A list may
    be written as words with commas between them.

    Raises:
        ValueError: the text is not a value of the type.
    """
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticSchemaGenerationError

    try:
        adapter = TypeAdapter[object](_type_of(parameter))
    except PydanticSchemaGenerationError:
        raise ValueError("a value of its type cannot be written here") from None
    readings: list[Callable[[], object]] = [
        partial(adapter.validate_python, text, strict=True),
        partial(adapter.validate_json, text, strict=True),
        partial(adapter.validate_python, text, strict=False),
        partial(adapter.validate_python, text.split(","), strict=False),
    ]
    if text == "null":
        readings.insert(0, readings.pop(1))
    if text == "None":
        readings.append(partial(adapter.validate_python, None, strict=True))
    faults: dict[str, None] = {}
    for read in readings:
        try:
            return read()
        except ValidationError as error:
            said = [one["msg"].removeprefix("Input should be ") for one in error.errors()]
            faults = faults or dict.fromkeys(said)
    null = ", or null" if type(None) in get_args(_type_of(parameter)) else ""
    raise ValueError(f"give {' or '.join(faults)}{null}")


def _type_of(parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter: its annotation, else that of its default, else text."""
    kind = parameter.annotation
    if kind is parameter.empty or isinstance(kind, str):
        return str if parameter.default in (None, parameter.empty) else type(parameter.default)
    members = get_args(kind) if get_origin(kind) in (Union, type(int | None)) else (kind,)
    return Union[tuple(list[Any] if get_origin(one) is Collection else one for one in members)]  # noqa: UP007  built from a tuple


def graph_of(made: object, ref: str) -> Graph:
    """Return what a function returned, if it is a graph.

    Raises:
        UsageError: it is something else.
    """
    from orchestrator.graph_class import Graph

    if not isinstance(made, Graph):
        raise UsageError(f"{ref} returned {type(made).__name__} instead of a Graph")
    return made
