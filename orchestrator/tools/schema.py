"""Derives the JSON Schema of a function's parameters from its signature, hints and docstring.

Docstrings are in Google, NumPy or Sphinx style.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Annotated, Any, NewType, Union, Unpack, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from msgspec import Struct
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from orchestrator.errors import SecretInState
from orchestrator.graph.codec import ordered, secret_in
from orchestrator.graph.signatures import hints_of, is_context
from orchestrator.tools.docstrings import Documented, ParameterDoc, read_docstring, written_type

IdempotencyKey = NewType("IdempotencyKey", str)
"""Annotation of a parameter that receives the call's idempotency key, which is the same when the call is repeated after
a crash. It is not part of the tool's schema."""

_KEY = "idempotency_key"
_EMPTY = inspect.Parameter.empty
REST = "**"


class Wants(Struct, frozen=True):
    """Parameters of a tool's function, by their source."""

    given: tuple[inspect.Parameter, ...]
    """Parameters that the caller passes."""
    key: tuple[str, ...] = ()
    """Parameters that receive the idempotency key."""
    ctx: tuple[str, ...] = ()
    """Parameters that receive the context of the calling step."""
    rest: inspect.Parameter | None = None
    """The parameter for any further keywords (`**kwargs`)."""
    positional: tuple[inspect.Parameter, ...] = ()
    """Positional-only parameters."""
    env: tuple[str, ...] = ()
    """Parameters that receive the instance of the tool's pool."""


class Spec(Struct, frozen=True):
    """Description and schema of a tool's function."""

    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments, an object."""
    types: Mapping[str, TypeAdapter[Any]]
    """Types of its parameters; the type of further keywords is stored under `REST`."""
    defaults: Mapping[str, Callable[[], Any]]
    """Defaults of parameters that are written as `Field(default=...)`."""
    returns: object = Any
    """The return type."""
    names: Mapping[str, str] = {}
    """Argument -> parameter, where they differ: parameters with `Field(alias=...)`."""

    def type_of(self, name: str) -> TypeAdapter[Any] | None:
        """Return the type that an argument is read as; None if any value is allowed."""
        return self.types.get(name) or self.types.get(REST)


def wants_of(function: Callable[..., object], name: str, *, bound: bool, pooled: bool = False) -> Wants:
    """Sort a function's parameters by their source.

    Args:
        bound: leave out the first, which is its `self`.
        pooled: whether the tool has a pool, so that the parameter `env` receives an instance of it.

    Raises:
        TypeError: the function takes `*args`, which a model cannot name; or it has a pool and no `env`, or an `id`,
            which selects the instance of a call.
    """
    parameters = list(inspect.signature(function).parameters.values())
    given: list[inspect.Parameter] = []
    key: list[str] = []
    ctx: list[str] = []
    env: list[str] = []
    rest: inspect.Parameter | None = None
    for parameter in parameters[1:] if bound else parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise TypeError(
                f"tool {name!r} takes *{parameter.name}: a model gives arguments by name, so take a list instead, "
                f"such as {parameter.name}: list[str]"
            )
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            rest = parameter
        elif parameter.name == _KEY or _is_key(parameter.annotation):
            key.append(parameter.name)
        elif parameter.name == "ctx" or is_context(parameter.annotation):
            ctx.append(parameter.name)
        elif pooled and parameter.name == "env":
            env.append(parameter.name)
        else:
            given.append(parameter)
    if pooled and not env:
        raise TypeError(f"tool {name!r} has a pool but takes no instance: give it a parameter env")
    if pooled and any(parameter.name == "id" for parameter in given):
        raise TypeError(f"tool {name!r} has a pool, and id= selects the instance of a call: rename its parameter id")
    only = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    positional = tuple(only[1:] if bound and only else only)
    return Wants(tuple(given), tuple(key), tuple(ctx), rest, positional, tuple(env))


def _is_key(annotation: object) -> bool:
    if isinstance(annotation, str):
        return re.fullmatch(r"(\w+\.)*IdempotencyKey(\s*\|\s*None)?", annotation.strip()) is not None
    return annotation is IdempotencyKey or IdempotencyKey in get_args(annotation)


def spec_of(
    function: Callable[..., object], name: str, wants: Wants, *, around: Mapping[str, object] | None = None
) -> Spec:
    """Return the schema of a function's parameters, with their descriptions from its docstring.

    A type without a hint is taken from the docstring if it is one of the plain ones, else from the default; docstrings
    are never evaluated.

    Args:
        around: names that hints may use in addition to the function's globals.

    Raises:
        TypeError: pydantic has no schema for a parameter's type.
        SecretInState: a parameter is a secret, although arguments of models are journaled.
    """
    docs = read_docstring(inspect.getdoc(_documented(function)))
    hints = hints_of(function, around)
    adapters: dict[str, TypeAdapter[object]] = {}
    defaults: dict[str, Callable[[], object]] = {}
    required: list[str] = []
    names: dict[str, str] = {}
    rest = () if wants.rest is None or wants.rest.name not in hints else (wants.rest,)
    for parameter in (*wants.given, *rest):
        place = f"tool {name!r}, parameter {parameter.name!r}"
        annotation: object = _annotation(parameter, hints, docs, place)
        if isinstance(annotation, str):
            raise TypeError(f"{place}: the type {annotation!r} is not known where the tool is defined; import it there")
        if secret_in(annotation):
            raise SecretInState(f"{place} is a secret, and arguments are journaled: take it from ctx.deps instead")
        own = parameter.default if isinstance(parameter.default, FieldInfo) else None
        alias, annotation = _aliased(annotation, own)
        argument = alias or parameter.name
        if alias:
            names[alias] = parameter.name
        if own is not None and not own.is_required():
            defaults[argument] = partial(own.get_default, call_default_factory=True, validated_data={})
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            if annotation is not Any and annotation is not object:
                adapters[REST] = _typed(annotation, _EMPTY, place)
            continue
        if parameter.default is _EMPTY or (own is not None and own.is_required()):
            required.append(argument)
        adapters[argument] = _typed(annotation, parameter.default, place)
    arguments = {parameter: argument for argument, parameter in names.items()}
    parameters = _parameters(name, wants, docs, adapters, arguments)
    if required:
        parameters["required"] = required
    return Spec(docs.text, parameters, adapters, defaults, hints.get("return", Any), names)


def _aliased(annotation: Any, own: FieldInfo | None) -> tuple[str, object]:
    """Return the alias of a parameter, empty for none, and its type without it: pydantic warns of an alias there."""
    parts = [*get_args(annotation)] if get_origin(annotation) is Annotated else [annotation]
    parts += [] if own is None else [own]
    alias = ""
    for place, part in enumerate(parts):
        if isinstance(part, FieldInfo):
            given = part.validation_alias or part.alias
            alias = given if isinstance(given, str) else alias
            parts[place] = plain = copy(part)
            plain.alias = plain.validation_alias = plain.serialization_alias = None
    return alias, Annotated[tuple(parts)] if len(parts) > 1 else parts[0]


def _documented(function: object) -> object:
    """Return the object whose docstring describes a function or a callable object."""
    if isinstance(function, partial):
        return _documented(function.func)
    return function if inspect.isroutine(function) else type(function).__call__


def _said(error: PydanticUserError) -> str:
    """Return the first sentence of pydantic's message; the others are not about tools."""
    return error.message.partition(". ")[0].rstrip(".")


def _parameters(
    name: str,
    wants: Wants,
    docs: Documented,
    adapters: Mapping[str, TypeAdapter[object]],
    arguments: Mapping[str, str],
) -> dict[str, object]:
    try:
        schemas, shared = TypeAdapter.json_schemas(
            [(key, "validation", adapter) for key, adapter in adapters.items()], ref_template="#/$defs/{model}"
        )
    except PydanticUserError as error:
        raise TypeError(f"tool {name!r}: {_said(error)}; use types that JSON can represent") from None
    properties: dict[str, object] = {}
    for parameter in wants.given:
        argument = arguments.get(parameter.name, parameter.name)
        schema = dict(schemas[(argument, "validation")])
        schema.pop("title", None)
        words = docs.parameters.get(parameter.name, ParameterDoc()).description
        if words and "description" not in schema:
            schema["description"] = words
        default = parameter.default
        if isinstance(default, FieldInfo):
            default = _EMPTY if default.is_required() else _default_of(default)
        if default is not _EMPTY:
            with suppress(ValueError):  # the function applies its default itself; a model need not see it
                schema["default"] = _written_default(adapters[argument], default)
        properties[argument] = schema
    found: dict[str, object] = {"type": "object", "properties": properties}
    if "$defs" in shared:
        found["$defs"] = shared["$defs"]
    found["additionalProperties"] = schemas.get((REST, "validation"), wants.rest is not None)
    return found


def _default_of(field: FieldInfo) -> object:
    """Return the default of a field, if it is always the same: schemas are compared between processes."""
    made: object = field.default_factory
    if made is None:
        return field.default
    return made() if isinstance(made, type) and made.__module__ == "builtins" else _EMPTY


def _written_default(adapter: TypeAdapter[object], default: object) -> object:
    """Return a default as JSON that is the same in each process.

    Raises:
        ValueError: JSON cannot represent it.
    """
    found = ordered(default, adapter.dump_python(default, mode="json", warnings=False))
    json.dumps(found, allow_nan=False)
    return found


def _typed(annotation: object, default: object, place: str) -> TypeAdapter[object]:
    if get_origin(annotation) is Unpack:
        raise TypeError(f"{place}: write the keywords of {get_args(annotation)[0].__name__} as parameters")
    try:
        return _adapter(annotation, default)
    except PydanticUserError as error:
        raise TypeError(f"{place}: {_said(error)}; use a type that JSON can represent") from None


def _adapter(annotation: Any, default: object) -> TypeAdapter[Any]:
    """Return an adapter for values of a type. None, if it is the default, is accepted for every type."""
    annotation = with_newer_dicts(annotation)
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    if default is None:
        try:
            adapter.validate_python(None)
        except ValidationError:
            either: Any = Union  # `|` does not support every kind of annotation
            return TypeAdapter(either[annotation, None])
    return adapter


def _annotation(parameter: inspect.Parameter, hints: Mapping[str, object], docs: Documented, place: str) -> object:
    if parameter.name in hints:
        return hints[parameter.name]
    written = docs.parameters.get(parameter.name, ParameterDoc()).type
    if written:
        found = written_type(written)
        if found is not None:
            return found
    if isinstance(parameter.default, bool | int | float | str):
        return type(parameter.default)
    return Any


def bare_schema(schema: object) -> Any:
    """Return a JSON Schema without descriptions: only what it accepts."""
    if isinstance(schema, list):
        return [bare_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key in ("description", "title", "examples", "$comment"):
            continue
        named = key in ("properties", "$defs", "patternProperties", "definitions") and isinstance(value, dict)
        if named:
            found[key] = {name: bare_schema(inner) for name, inner in value.items()}
        else:
            found[key] = value if key in ("enum", "const", "default", "required") else bare_schema(value)
    return found


def with_newer_dicts(annotation: object) -> Any:
    """Return the annotation with each `typing.TypedDict` in it replaced by one of `typing_extensions`."""
    return annotation if sys.version_info >= (3, 12) else _replaced(annotation, {})


def _replaced(annotation: Any, known: dict[int, Any]) -> Any:
    if is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _newer(annotation, known)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None or not args:
        return annotation
    if origin is Annotated:
        inner = _replaced(args[0], known)
        return annotation if inner is args[0] else Annotated[(inner, *args[1:])]
    replaced = tuple(arg if isinstance(arg, str | list) else _replaced(arg, known) for arg in args)
    if all(new is old for new, old in zip(replaced, args, strict=True)):
        return annotation
    if origin is types.UnionType:
        return Union[replaced]  # noqa: UP007  of as many members as there are
    return annotation.copy_with(replaced) if hasattr(annotation, "copy_with") else origin[replaced]


def _newer(old: Any, known: dict[int, Any]) -> Any:
    if id(old) in known:
        return known[id(old)]
    known[id(old)] = old  # a recursive one is left unchanged inside, so that pydantic reports it
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(old, include_extras=True).items():
        # In a class whose hints are strings, as under `from __future__ import annotations`, required keys are unknown.
        said = get_origin(hint)
        marked = said in (typing_extensions.Required, typing_extensions.NotRequired)
        inner = _replaced(get_args(hint)[0] if marked else hint, known)
        required = said is typing_extensions.Required if marked else name in old.__required_keys__
        fields[name] = inner if required else typing_extensions.NotRequired[inner]
    make: Any = typing_extensions.TypedDict  # type checkers require literal names and fields
    new = make(old.__name__, fields)
    new.__doc__, new.__module__ = old.__doc__, old.__module__
    known[id(old)] = new
    return new
