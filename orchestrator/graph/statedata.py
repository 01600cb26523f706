"""State schemas as data, and back.

A state that was written as data has `type` texts, so its class can be made anywhere. A state class of the user's
is kept as its JSON schema and its `ref`: enough to draw, show and fold a stored run without the code.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from orchestrator.errors import GraphError
from orchestrator.graph.codec import JsonCodec
from orchestrator.graph.data_faults import BOOLEANS, unknown_field
from orchestrator.graph.faults import Faults
from orchestrator.graph.fields import Field, fields_of, reduce_json
from orchestrator.graph.inline_types import InlineTypes, model_faults
from orchestrator.graph.names_meant import close_to
from orchestrator.graph.reducers import BUILTIN, local
from orchestrator.graph.state import StateSchema
from orchestrator.graph.trust import Trust
from orchestrator.jsontypes import JsonObject

STATE_KEYS: Mapping[str, str] = {
    "name": "the name of the state",
    "fields": "name -> type, or a mapping with it, of each field",
    "types": "name -> fields of each model that types of fields name",
}
"""What a state that is written as data has."""
FIELD_KEYS: Mapping[str, str] = {
    "type": "the type, such as list[str]",
    "reducer": "how an update changes the value; without one it replaces it",
    "default": "the value at the start; without one a run needs an input for it",
    "description": "what it is, for people",
}
"""What a field of such a state has."""


class _Schema(GenerateJsonSchema):
    """JSON schema that says nothing, instead of failing, where a type has none."""

    def handle_invalid_for_json_schema(self, schema: object, error_info: str) -> JsonSchemaValue:
        return {}

    def encode_default(self, dft: object) -> Any:
        return None  # defaults are written beside the schema

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def type_schema(annotation: Any, mode: Literal["validation", "serialization"]) -> JsonObject | None:
    """JSON Schema of the values of a type, by the names of fields; None where it says nothing about them."""
    try:
        found = TypeAdapter(annotation).json_schema(by_alias=False, mode=mode, schema_generator=_Schema)
    except PydanticUserError:
        return None
    return found if found.keys() - {"title", "description"} else None


def class_data(schema: StateSchema) -> JsonObject:
    """A state schema as JSON, worked out from its class."""
    cls = schema.cls
    assert cls is not None
    types = cls.model_json_schema(by_alias=False, schema_generator=_Schema)
    properties = types.get("properties", {})
    fields = {name: _field_data(schema.field(name), properties.get(name, {})) for name in schema.fields}
    data: dict[str, object] = {"name": schema.name, "ref": schema.ref, "fields": fields}
    if "$defs" in types:
        data["$defs"] = types["$defs"]
    return data


def start_form(schema: StateSchema, named: Sequence[str] | None = None) -> JsonObject:
    """JSON Schema of what a run starts with: an object with the fields that its input may set.

    Args:
        schema: the state.
        named: the fields that the graph's `input` names, the `x-input` of the form; None: all fields of the state.
    """
    data = class_data(schema) if schema.cls is not None else schema.data()
    specs: Any = data.get("fields", {})
    names = list(specs if named is None else named)
    properties: dict[str, object] = {}
    for name in names:
        spec = specs[name]
        default = {"default": spec["default"]} if "default" in spec else {}
        properties[name] = {**spec.get("schema", {}), **default}
    form: dict[str, object] = {
        "type": "object", "title": schema.name, "properties": properties, "additionalProperties": False,
        "required": [name for name in names if specs[name].get("required")], "x-input": list(named or ()),
    }  # fmt: skip
    if "$defs" in data:
        form["$defs"] = data["$defs"]
    return form


def fields_form(schema: StateSchema, names: Collection[str], *, update: bool = False) -> dict[str, Any]:
    """JSON Schema of an object with some fields of a state: with their values, or with what an update brings."""
    form: Any = start_form(schema)
    found = {name: one for name, one in form["properties"].items() if name in names}
    for name in found if update else ():
        reducer = schema.field(name).reducer
        if reducer == "append":
            found[name] = found[name].get("items", {})
        elif reducer and reducer not in BUILTIN:
            found[name] = {}
    return {"type": "object", "properties": found, "additionalProperties": False, "$defs": form.get("$defs", {})}


def _field_data(field: Field, types: Mapping[str, object]) -> JsonObject:
    data: dict[str, object] = {"schema": {key: value for key, value in types.items() if key != "title"}}
    if field.reducer:
        data["reducer"] = field.reducer
    if field.local:
        data["local"] = True
    if not field.portable:
        data["portable"] = False
    if field.required:
        data["required"] = True
    else:
        try:
            first, second = field.codec.dump(field.default()), field.codec.dump(field.default())
        except Exception:  # of a factory of the user's, which may want the other fields
            first, second = None, 0
        if first == second:  # a factory that gives another value each time has no default to write
            data["default"] = first
    return data


def schema_from_data(data: JsonObject, *, resolve: bool | Trust = False) -> StateSchema:
    """A state schema from JSON.

    Args:
        resolve: whether references are followed; a `Trust` says which.

    Raises:
        GraphError: the data is none.
        GraphUnknown: `resolve` is true and a reference cannot be imported.
        UntrustedCode: `resolve` is a `Trust` that refuses a reference.
    """
    from orchestrator.graph.state import StateSchema

    trust = Trust.of(resolve) if resolve else None

    fields = data.get("fields")
    if not isinstance(fields, Mapping):
        meant = next((one for one in map(str, data) if one != "fields" and close_to(one, ["fields"])), None)
        fix = f"did you mean 'fields' by {meant!r}?" if meant else "put the fields below 'fields:'"
        raise GraphError(f"a state written as data needs 'fields': a mapping from name to type; {fix}")
    if "ref" not in data and not any(isinstance(spec, Mapping) and "schema" in spec for spec in fields.values()):
        return inline_schema(data, trust)
    name, ref = str(data.get("name", "State")), data.get("ref")
    if trust is not None:
        if not isinstance(ref, str):
            raise GraphError(f"state {name} was made inside a function: its class cannot be imported")
        return StateSchema.of(trust.follow(ref, "state"))
    found = {str(key): _json_field(str(key), spec) for key, spec in fields.items() if isinstance(spec, Mapping)}
    return StateSchema(name, None, found, ref=ref if isinstance(ref, str) else None, stored=data)


def named_fields(data: JsonObject, names: Iterable[str]) -> StateSchema:
    """The schema of a state class that is not at hand: it has all fields that are named, and each fits everything."""
    from orchestrator.graph.state import StateSchema

    spec = {"schema": {"anyOf": [{"type": "array"}, {}]}, "reducer": "?", "portable": False}
    fields = {name: _json_field(name, spec) for name in names}
    return StateSchema(str(data.get("name", "State")), None, fields, ref=str(data["ref"]), stored=data)


def _json_field(name: str, spec: Mapping[str, object]) -> Field:
    types = spec.get("schema")
    shape = types if isinstance(types, Mapping) else {}
    reducer = str(spec.get("reducer", ""))
    portable = spec.get("portable") is not False

    def default() -> object:
        return spec.get("default")

    def keep(old: object, new: object) -> object:
        return old  # what a reducer that is code makes is in the journal

    reduce = None
    if reducer:
        reduce = (reduce_json(reducer, unordered=shape.get("uniqueItems") is True) if portable else None) or keep
    options = shape.get("anyOf")
    shapes = [shape, *(o for o in (options if isinstance(options, list) else ()) if isinstance(o, Mapping))]
    return Field(
        name=name,
        codec=JsonCodec(),
        taken=JsonCodec(),
        reduce=reduce,
        default=default,
        reducer=reducer,
        local=spec.get("local") is True,
        portable=portable,
        required=spec.get("required") is True,
        is_list=any(s.get("type") == "array" and not s.get("uniqueItems") for s in shapes),
    )


# -- states that are written as data ----------------------------------------------------------------------------


def inline_schema(data: JsonObject, trust: Trust | None = None) -> StateSchema:
    """The schema of a state that is written as data: `{"name": "Essay", "fields": {"topic": "str"}}`.

    A field is a type text, or a mapping with `type`, and maybe `reducer`, `default` and `description`. Models that
    types name are in `types`: name -> fields.

    Raises:
        GraphError: a field is not written like that; of several faults names all.
    """
    from orchestrator.graph.state import StateSchema

    unknown = sorted(set(map(str, data)) - STATE_KEYS.keys())
    if unknown:
        raise GraphError(f"state data {unknown_field(unknown[0], tuple(STATE_KEYS))}")
    name = str(data.get("name", "State"))
    specs = data.get("fields")
    assert isinstance(specs, Mapping)
    unresolved: list[str] = []
    faults = Faults()
    types = InlineTypes(data.get("types", {}))
    with faults.at("types"):
        types.check()
    definitions: dict[str, Any] = {}
    for key, spec in specs.items():
        with faults.at("fields", str(key)):
            if trust is not None:
                _check_name(key)
            definitions[str(key)] = _definition(str(key), spec, trust, unresolved, types)
    faults.raise_any()
    with model_faults(f"state {name}"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute")  # a field `copy` is one all the same
        cls = create_model(name, __module__=__name__, **definitions)
    inline: dict[str, object] = {"name": name, "fields": {str(key): spec for key, spec in specs.items()}}
    if data.get("types"):
        inline["types"] = data["types"]
    fields = fields_of(cls)
    for field in unresolved:
        _leave_unresolved(fields[field], specs[field])
    schema = StateSchema(name, cls, fields, inline=inline)
    if not unresolved:
        StateSchema.remember(cls, schema)
    return schema


def _check_name(name: object) -> None:
    """
    Raises:
        GraphError: a file names a field so, and graphs or prompts could not.
    """
    if isinstance(name, bool):
        raise GraphError(f"field name {name} is not a text; {BOOLEANS}")
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise GraphError(f"field name {name!r}: use a name of letters, digits and _ that begins with a letter")
    if name.startswith("model_") and hasattr(BaseModel, name):
        raise GraphError(f"field name {name!r} belongs to pydantic, which reads states: rename the field")


def _definition(
    name: str, spec: object, trust: Trust | None, unresolved: list[str], types: InlineTypes
) -> tuple[object, object]:
    if isinstance(spec, str):
        return types.parse(spec), ...
    if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
        raise GraphError(f"field {name!r} of the state needs a type, such as 'str' or {{type: 'list[str]'}}")
    unknown = sorted(set(map(str, spec)) - FIELD_KEYS.keys())
    if unknown:
        raise GraphError(f"field {name!r} {unknown_field(unknown[0], tuple(FIELD_KEYS))}")
    kind = types.parse(str(spec["type"]))
    default = types.default(name, kind, spec)
    reducer = spec.get("reducer")
    if trust is not None and reducer is not None and not isinstance(reducer, str):
        raise GraphError(f"field {name!r} has a reducer {reducer!r}: write one of {', '.join([*BUILTIN, 'local'])}")
    if reducer == "local":
        kind = Annotated[kind, local]
    elif isinstance(reducer, str):
        if reducer in BUILTIN:
            kind = Annotated[kind, BUILTIN[reducer]]
        elif ":" in reducer:
            if trust is None:
                unresolved.append(name)
            else:
                function = trust.follow(reducer, "reducer")
                kind = Annotated[kind, function]
        else:
            known = [*BUILTIN, "local"]
            close = close_to(reducer, known)
            mend = f"did you mean {close!r}?" if close else f"there are {', '.join(known)} and 'module:function'"
            raise GraphError(f"field {name!r} names reducer {reducer!r}: {mend}")
    from pydantic import Field as PydanticField

    description = spec.get("description")
    return kind, PydanticField(description=description if isinstance(description, str) else None, **default)


def _leave_unresolved(field: Field, spec: object) -> None:
    assert isinstance(spec, Mapping)
    field.reducer, field.portable = str(spec["reducer"]), False
    field.reduce = lambda old, new: old
