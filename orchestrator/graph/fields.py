"""The fields of a state class: how each is validated, written and reduced."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator, WrapValidator
from pydantic import Field as PydanticField
from pydantic.fields import FieldInfo

from orchestrator.errors import GraphError, SecretInState
from orchestrator.graph.codec import Codec, JsonCodec, parts_of, secret_in
from orchestrator.graph.isolation import grown, isolated, json_copy
from orchestrator.graph.reducers import BUILTIN, Local, Reducer, ReducerFunction, is_reducer, reducer_name, takes_two
from orchestrator.values import MAX_DEPTH, Unfit

_VALIDATORS: Mapping[str, Callable[[Any], object]] = {
    "before": BeforeValidator,
    "after": AfterValidator,
    "wrap": WrapValidator,
    "plain": PlainValidator,
}


class Field(Struct):
    """A field of a state."""

    name: str
    codec: Codec | JsonCodec
    """The codec of the field's whole value."""
    taken: Codec | JsonCodec
    """The codec of an update: for `append`, of one item."""
    reduce: ReducerFunction | None
    default: Callable[[], Any]
    """Returns the default. Raises `Unfit` if there is none."""
    reducer: str = ""
    local: bool = False
    portable: bool = True
    required: bool = False
    is_list: bool = False
    constrained: bool = False
    """True if reducing can violate constraints that the annotation puts on the whole value."""
    annotation: Any = None
    """The annotation; None if the class is not loaded."""

    def extend(self, old: Any, items: Any) -> Any:
        """Return a list with the items of many updates appended."""
        return grown(old, [self.taken.load(item) for item in items])


def fields_of(cls: type[BaseModel]) -> dict[str, Field]:
    """Return the fields of a state class, by name.

    Raises:
        SecretInState: a field's type is a secret or contains one.
        GraphError: a reducer does not fit its field, or values of a field can be read once only.
    """
    return {name: _field(cls, name, info) for name, info in cls.model_fields.items()}


def _field(cls: type[BaseModel], name: str, info: FieldInfo) -> Field:
    place = f"field {name!r} of state {cls.__name__}"
    if secret_in(info.annotation):
        raise SecretInState(f"{place} is a secret: pass it in deps, or as an 'env:NAME' reference")
    if not {Iterable, Iterator, Generator}.isdisjoint(parts_of(info.annotation)):
        raise GraphError(
            f"{place} is, or holds, an Iterable, Iterator or Generator, whose values can be read once only: "
            "use a list or a Sequence"
        )
    reducers = [extra for extra in info.metadata if is_reducer(extra)]
    local = any(isinstance(extra, Local) for extra in info.metadata)
    if len(reducers) + local > 1:
        names = ", ".join(reducer_name(r) for r in reducers) + (", local" if local else "")
        raise GraphError(f"{place} names more than one reducer ({names}): keep one")
    for reducer in reducers:
        if not takes_two(reducer):
            raise GraphError(f"{place} has the reducer {reducer_name(reducer)}, which cannot be called as f(old, new)")
    extras: list[object] = [extra for extra in info.metadata if not is_reducer(extra) and not isinstance(extra, Local)]
    if info.discriminator is not None:
        extras.append(PydanticField(discriminator=info.discriminator))
    bare = info.annotation
    config = _config(cls)
    validators = _validators(cls, name)
    codec = Codec(Annotated[(bare, *extras)] if extras else bare, config, validators)
    reducer = reducers[0] if reducers else None
    if codec.isolate is json_copy and not isinstance(reducer, Reducer | None):
        codec.isolate = isolated  # the result of a user's reducer need not be JSON
    inside = 1 if isinstance(reducer, Reducer) and reducer.name == "append" else 0  # an item is one level deeper
    taken = codec if reducer is None else Codec(_taken(place, reducer, bare), config, depth=MAX_DEPTH - inside)
    return Field(
        name=name,
        codec=codec,
        taken=taken,
        reduce=None if reducer is None else _folding(reducer),
        default=_default(info),
        reducer="" if reducer is None else reducer_name(reducer),
        local=local,
        portable=reducer is None or _portable(reducer, bare),
        required=info.is_required(),
        is_list=_member(bare, (list, tuple)) is not None,
        constrained=reducer is not None and bool(extras or validators),
        annotation=bare,
    )


def _folding(reducer: ReducerFunction) -> ReducerFunction:
    """Return the function that reduces during the fold: lists share items; user code cannot change its arguments."""
    if isinstance(reducer, Reducer):
        return _GROWING.get(reducer.name, reducer)

    def reduce(old: object, new: object) -> Any:
        return reducer(isolated(old), isolated(new))

    return reduce


def _append(old: object, new: object) -> object:
    return grown(old, (new,))


_GROWING: Mapping[str, ReducerFunction] = {"append": _append, "extend": grown}
"""Built-in list reducers for the fold, which keeps every version: equal results in shared lists."""


def _default(info: FieldInfo) -> Callable[[], object]:
    def default() -> Any:
        if info.is_required():
            raise Unfit("it is missing, and has no default")
        return info.get_default(call_default_factory=True, validated_data={})

    return default


def _config(cls: type[BaseModel]) -> ConfigDict | None:
    """Return the part of the class's configuration that applies to single values; None if it is empty."""
    about_the_class = {"frozen", "extra", "title", "json_schema_extra", "validate_assignment", "from_attributes"}
    kept = {key: value for key, value in cls.model_config.items() if key not in about_the_class}
    return cast(ConfigDict, kept) if kept else None


def _validators(cls: type[BaseModel], name: str) -> list[object]:
    """Return the class's `@field_validator`s of one field, as metadata for an annotation."""
    found = []
    for decorator in cls.__pydantic_decorators__.field_validators.values():
        if name in decorator.info.fields or "*" in decorator.info.fields:
            found.append(_VALIDATORS[decorator.info.mode](decorator.func))
    return found


def _member(annotation: object, kinds: tuple[type, ...]) -> object:
    """Return the type itself, or the member of its union, that is one of these containers; None if there is none."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _member(get_args(annotation)[0], kinds)
    if origin in (Union, types.UnionType):
        found = (_member(argument, kinds) for argument in get_args(annotation))
        return next((member for member in found if member is not None), None)
    return annotation if annotation in kinds or origin in kinds else None


def _taken(place: str, reducer: object, annotation: object) -> object:
    """Return the type of an update of a reduced field."""
    if not isinstance(reducer, Reducer):
        return _second_parameter(reducer, annotation)
    wanted: dict[str, tuple[type, ...]] = {
        "append": (list,),
        "extend": (list,),
        "merge": (dict,),
        "union": (list, set, frozenset),
    }
    if reducer.name not in wanted:
        return annotation
    member = _member(annotation, wanted[reducer.name])
    if member is None:
        kinds = " or ".join(kind.__name__ for kind in wanted[reducer.name])
        raise GraphError(f"{place} has the reducer {reducer.name}, which needs a {kinds}")
    if reducer.name == "append":
        return (get_args(member) or (Any,))[0]
    return member


def _second_parameter(reducer: object, otherwise: object) -> object:
    """Return the annotation of a reducer's second parameter; the field's own type if it has none."""
    if not callable(reducer):
        return otherwise
    try:
        names = list(inspect.signature(reducer).parameters)
        hint = typing.get_type_hints(reducer, include_extras=True).get(names[1], otherwise)
    except (TypeError, ValueError, NameError, IndexError):
        return otherwise
    return otherwise if isinstance(hint, typing.TypeVar) else hint


def _portable(reducer: object, annotation: object) -> bool:
    """Return True if a built-in reducer has the same result on JSON as on values of this type."""
    if not isinstance(reducer, Reducer):
        return False
    if reducer.name in ("append", "extend"):
        return True
    if reducer.name == "add":
        return annotation in (int, float, str) or get_origin(annotation) is list
    arguments = get_args(_member(annotation, (dict, list, set, frozenset)))
    if reducer.name == "merge":
        return bool(arguments) and arguments[0] is str
    return bool(arguments) and (arguments[0] in (str, int) or get_origin(arguments[0]) is Literal)


def reduce_json(name: str, *, unordered: bool = False) -> ReducerFunction | None:
    """Return a built-in reducer for JSON; None if the reducer is user code."""
    from orchestrator.json import canonical

    builtin = BUILTIN.get(name)
    if builtin is None or not unordered:
        return None if builtin is None else _folding(builtin)

    def union_of_sets(old: object, new: object) -> object:
        return sorted(builtin(old, new), key=canonical)

    return union_of_sets


def holds(annotation: Any, kind: Any) -> bool:
    """Return True if values of a field may be of a kind such as `list` or `str`; also if its type is unknown."""
    return annotation is None or annotation is Any or _member(annotation, (kind,)) is not None
