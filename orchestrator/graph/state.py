"""The state of a graph: its fields, how they are updated, and how values become JSON and back.

The kernel keeps values as a dict from field name to Python value (or to JSON, if the class is not loaded). The journal
always contains JSON. Nodes get an instance of the state class that shares nothing mutable with the kernel's values.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from orchestrator.errors import GraphError, InvalidInput, InvalidUpdate, SecretInState
from orchestrator.graph.codec import JsonCodec, explain, explain_fields, refuse_secrets
from orchestrator.graph.faults import BOOLEANS, Faults
from orchestrator.graph.fields import Field, fields_of, reduce_json
from orchestrator.graph.isolation import Views, listed
from orchestrator.graph.reducers import BUILTIN, Extend, Replace, local
from orchestrator.graph.refs import Trust, ref_of
from orchestrator.graph.text.types import InlineTypes, model_faults
from orchestrator.json import JsonObject
from orchestrator.spelling import close_to, did_you_mean, unknown_field
from orchestrator.values import Unfit

_set = object.__setattr__
_KEPT = "__orchestrator_schema__"


class StateField(Struct, frozen=True):
    """The properties of one field that the kernel needs."""

    name: str
    reducer: str = ""
    """`append`, another built-in reducer, or `module:attr`; empty for a plain field."""
    local: bool = False
    """True if the field is local to a branch: a join restores its value from the fork."""
    portable: bool = True
    """True if folding the field's JSON without any code has the same result as folding its values."""

    @property
    def plain(self) -> bool:
        """True if the last update in sequence wins, and branches that both write the field conflict."""
        return self.reducer == ""


class StateSchema:
    """The schema of one state class, worked out once. Make it with `StateSchema.of` or `StateSchema.from_data`."""

    def __init__(
        self,
        name: str,
        cls: type[BaseModel] | None,
        fields: Mapping[str, Field],
        *,
        ref: str | None = None,
        inline: JsonObject | None = None,
        stored: JsonObject | None = None,
    ) -> None:
        """Use `of` or `from_data` instead of the constructor.

        Args:
            name: the name of the state.
            cls: the state class; None if its code is not loaded.
            fields: the fields by name.
            ref: `module:attr` of the class; None if it cannot be imported.
            inline: the data of a state defined as data; None for a class.
            stored: the stored data of a state whose class is not loaded.
        """
        self.name = name
        self.cls = cls
        self.ref = ref
        """`module:attr` of the class; None if it cannot be imported."""
        self.inline = inline
        """The data of a state defined as data; None for a class."""
        self._stored = stored
        self._fields = dict(fields)
        self.fields: Mapping[str, StateField] = {
            field.name: StateField(field.name, field.reducer, field.local, field.portable) for field in fields.values()
        }
        self.coded = tuple(field.name for field in fields.values() if not field.portable)
        """Fields that only code can fold."""
        self.summed = tuple(f.name for f in fields.values() if f.reducer == "add" and f.annotation in (int, float))
        """Fields that are sums of numbers, which can grow beyond the range of JSON numbers."""
        isolating = [(field.name, field.codec.isolate) for field in fields.values()]
        copied = tuple((name, isolate) for name, isolate in isolating if isolate is not None)
        self._names = frozenset(fields)
        self._views = Views(cls, self._names, copied)
        decorators = cls.__pydantic_decorators__ if cls is not None else None
        self._whole = decorators is not None and bool(
            decorators.model_validators
            or decorators.root_validators
            or any(field.constrained for field in fields.values())
        )

    @classmethod
    def of(cls, state: type[BaseModel]) -> StateSchema:
        """Return the schema of a state class. It is made once per class.

        Args:
            state: the class.

        Returns:
            The schema.

        Raises:
            SecretInState: a field's type is, or contains, a secret.
            GraphError: a reducer does not fit its field.
        """
        found = state.__dict__.get(_KEPT)
        if found is None:
            found = cls(state.__name__, state, fields_of(state), ref=ref_of(state))
            cls.remember(state, found)  # kept on the class, so that both are freed together
        return found

    @staticmethod
    def remember(state: type[BaseModel], schema: StateSchema) -> None:
        """Make `of(state)` return this schema.

        Args:
            state: the class.
            schema: its schema.
        """
        setattr(state, _KEPT, schema)

    @classmethod
    def from_data(cls, data: JsonObject, *, resolve: bool | Trust = False) -> StateSchema:
        """Make a schema from the result of `data()`.

        A state defined as data gets its class back. The values of any other state stay JSON.

        Args:
            data: the result of `data()`.
            resolve: whether to import the class; a `Trust` decides for each reference.

        Returns:
            The schema.
        """

        return schema_from_data(data, resolve=resolve)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateSchema):
            return NotImplemented
        written = self.inline is not None or self.cls is None  # compared as data; a class is equal only to itself
        return self.data() == other.data() if written else self.cls is other.cls

    def __hash__(self) -> int:
        return hash((self.name, *self.fields))

    def __repr__(self) -> str:
        return f"StateSchema({self.name}: {', '.join(self.fields)})"

    # -- values ------------------------------------------------------------------------------------------------

    def initial(self, given: Mapping[str, object]) -> JsonObject:
        """Return the whole start state as JSON: the validated input, and the defaults of all other fields.

        Args:
            given: the input, by field.

        Returns:
            The values of all fields.

        Raises:
            InvalidInput: the input does not fit; names every problem.
            SecretInState: a value contains a secret.
        """
        faults = [(str(name), self._unknown(name)) for name in given if name not in self._names]
        values: dict[str, object] = {}
        checked: Collection[str] = ()
        if self.cls is None:
            values = {**{n: f.default() for n, f in self._fields.items() if not f.required}, **given}
            faults += [(n, f"field {n!r} is missing") for n in self._fields if n not in values]
        else:
            try:
                instance = self.cls.model_validate(
                    {name: value for name, value in given.items() if name in self._names}, by_alias=True, by_name=True
                )
                values = {name: getattr(instance, name) for name in self._fields}
                checked = instance.model_fields_set
            except ValidationError as error:
                _refuse_secrets_in(given)
                faults += explain_fields(error)
        found: dict[str, object] = {}
        if not faults:
            for name, field in self._fields.items():
                try:
                    if name in checked:
                        found[name] = field.codec.write(values[name])
                    else:
                        found[name] = field.codec.encode(values[name], validators=False)
                except Unfit as error:
                    faults.append((name, f"field {name!r}: {error}"))
                except SecretInState as error:
                    raise SecretInState(f"field {name!r}: {error}") from None
        if faults:
            raise InvalidInput(f"input of {self.name}: {'; '.join(said for _, said in faults)}", faults=faults)
        return found

    def decode(self, values: JsonObject) -> dict[str, object]:
        """Read values of all or some fields from JSON.

        Args:
            values: the JSON of the fields.

        Returns:
            The values in the form in which the kernel keeps them.

        Raises:
            InvalidInput: a value no longer fits its field.
        """
        found: dict[str, object] = {}
        for name, field in self._fields.items():
            if name in values:
                try:
                    found[name] = field.codec.load(values[name])
                except Unfit as error:
                    raise InvalidInput(f"stored field {name!r} of {self.name}: {error}") from None
        return found

    def dump(self, values: Mapping[str, object]) -> JsonObject:
        """Return values as plain JSON.

        Args:
            values: values of all or some fields, as the kernel keeps them.

        Returns:
            JSON that is equal for equal values. The caller may keep and change it.
        """
        return {name: field.codec.dump(listed(values[name])) for name, field in self._fields.items() if name in values}

    def show(self, values: Mapping[str, object]) -> JsonObject:
        """Return values as JSON to display. Does not check that they could be stored."""
        return {name: field.codec.show(listed(values[name])) for name, field in self._fields.items() if name in values}

    def encode_update(self, update: Mapping[str, object] | None) -> tuple[JsonObject, dict[str, str]]:
        """Validate an update field by field and write it as JSON.

        Args:
            update: the new values by field; None: no update.

        Returns:
            The JSON of the update, and, for each field whose reducer does not apply in the usual way, `replace` or
            `extend`.

        Raises:
            InvalidUpdate: names every unknown field and every value that does not fit.
            SecretInState: a value contains a secret.
        """
        found: dict[str, object] = {}
        ops: dict[str, str] = {}
        if not update:
            return found, ops
        faults: list[str] = []
        for name, value in update.items():
            field = self._fields.get(name)
            if field is None:
                faults.append(self._unknown(name))
                continue
            try:
                if type(value) is Replace:
                    found[name] = field.codec.encode(value.value)
                    if field.reduce is not None:
                        ops[name] = "replace"
                elif type(value) is Extend:
                    found[name], op = self._extended(field, value)
                    if op:
                        ops[name] = op
                else:
                    found[name] = field.taken.encode(value)
            except Unfit as error:
                faults.append(f"field {name!r}: {error}")
            except SecretInState as error:
                raise SecretInState(f"field {name!r}: {error}") from None
        if faults:
            raise InvalidUpdate(f"update of {self.name}: {'; '.join(faults)}")
        return found, ops

    def _extended(self, field: Field, value: Extend) -> tuple[object, str]:
        if field.reducer == "append":
            return [field.taken.encode(item) for item in value.items], "extend"
        if field.reducer == "extend":
            return field.taken.encode(value.items), ""
        raise Unfit("extend() is for fields with the reducer append or extend")

    def _unknown(self, name: object) -> str:
        aliases: dict[object, str] = (
            {} if self.cls is None else {info.alias: own for own, info in self.cls.model_fields.items()}
        )
        if name in aliases:
            return f"{name!r} is an alias: write the field's name, {aliases[name]!r}"
        guess = did_you_mean(name, self.fields) or f" (the fields are {', '.join(self.fields)})"
        return f"there is no field {name!r}{guess}"

    def check_names(self, names: Iterable[str]) -> None:
        """Check that the state has fields of these names.

        Raises:
            ValueError: it has no such field.
        """
        for name in names:
            if name not in self._names:
                raise ValueError(self._unknown(name))

    def apply(self, values: Mapping[str, object], update: JsonObject, ops: Mapping[str, str]) -> dict[str, object]:
        """Reduce a journaled update into values. Changes nothing in place.

        Args:
            values: the old values.
            update: the JSON of the update, from `encode_update`.
            ops: how fields are updated, from `encode_update`.

        Returns:
            The new values.

        Raises:
            ValueError: the state has no such field.
        """
        new = dict(values)
        for name, value in update.items():
            field = self._fields.get(name)
            if field is None:
                raise ValueError(self._unknown(name))
            reduce = field.reduce
            if reduce is None:
                new[name] = field.codec.load(value)
                continue
            op = ops.get(name) if ops else None
            if op is None:
                new[name] = reduce(new.get(name), field.taken.load(value))
            elif op == "replace":
                new[name] = field.codec.load(value)
            else:
                new[name] = field.extend(new.get(name), value)
        return new

    def reduced(
        self, values: Mapping[str, object], fields: Iterable[str], *, checked: bool = True
    ) -> JsonObject | None:
        """Return the JSON of the fields that only code can fold.

        Args:
            values: the values.
            fields: the names of the fields to consider.
            checked: whether to check the values against their fields' types. Values of journals need not fit.

        Returns:
            The JSON of these fields; None if there are none.

        Raises:
            InvalidUpdate: a reducer returned a value that does not fit the field's type, or has no JSON form.
        """
        found: dict[str, object] = {}
        for name in fields:
            field = self._fields.get(name)
            if field is not None and not field.portable and name in values:
                value = listed(values[name])
                try:
                    found[name] = field.codec.encode(value, validators=False) if checked else field.codec.write(value)
                except Unfit as error:
                    fix = "return the field's new value" if value is None else "return a value of the field's type"
                    raise InvalidUpdate(
                        f"field {name!r}: the result of its reducer {field.reducer}: {error}: {fix}"
                    ) from None
        return found or None

    def check_sums(self, values: Mapping[str, object], fields: Iterable[str]) -> None:
        """Check the fields that are sums of numbers.

        Raises:
            InvalidUpdate: a number is too large.
        """
        for name in fields:
            try:
                self._fields[name].codec.write(values.get(name))
            except Unfit as error:
                raise InvalidUpdate(f"field {name!r}: the sum that its reducer add made: {error}") from None

    def view(self, values: Mapping[str, object], reads: frozenset[str] | None = None) -> Any:
        """Return the state as a node sees it: an instance that shares nothing mutable with the values.

        Fields of mutable types are copied when they are first read, so a view costs only what is read. Values of frozen
        types are shared. Without a class, the view is an object with the same attributes.

        Args:
            values: the values.
            reads: the only visible fields; reading another one raises an `AttributeError` that explains this. None for
                all.

        Returns:
            The view.
        """
        return self._views.view(values, reads)

    def check(self, values: Mapping[str, object]) -> None:
        """Check the results of reducers, and run the class's validators of the whole state.

        Args:
            values: the values.

        Raises:
            InvalidUpdate: a value does not fit its field's type, or a validator rejects the state.
        """
        self.reduced(values, self.coded)
        self.check_sums(values, self.summed)
        if not self._whole or self.cls is None:
            return
        try:
            self.cls.model_validate(self.view(values).__dict__, by_alias=True, by_name=True)
        except ValidationError as error:
            raise InvalidUpdate(f"state {self.name}: {explain(error)}") from None
        except Exception as error:  # raised by a validator of the user
            raise InvalidUpdate(f"state {self.name}: its validator raised {type(error).__name__}: {error}") from error

    # -- data --------------------------------------------------------------------------------------------------

    @cached_property
    def _data(self) -> JsonObject:

        return self._stored or self.inline or class_data(self)

    def data(self) -> JsonObject:
        """Return the state as JSON: its name, fields, types, reducers, defaults and `ref`."""
        return self._data

    def field(self, name: str) -> Field:
        """Return how a field is validated, written and reduced.

        Args:
            name: the field's name.

        Returns:
            The field.

        Raises:
            KeyError: the state has no such field.
        """
        return self._fields[name]

    def is_list(self, name: str) -> bool:
        """Return whether a field holds a list, so that a map can iterate over it.

        Args:
            name: the field's name.

        Returns:
            True for a list.
        """
        return self._fields[name].is_list


def _refuse_secrets_in(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        try:
            refuse_secrets(value)
        except SecretInState as error:
            raise SecretInState(f"field {name!r}: {error}") from None


# -- State schemas as data, and back ---------------------------------------------------------------------------
# A state defined as data has its types as texts, so its class can be made anywhere. A user's state class is kept as its
# JSON schema and its `ref`: enough to draw, show and fold a stored run without the code.


STATE_KEYS: Mapping[str, str] = {
    "name": "the name of the state",
    "fields": "name -> type, or a mapping with it, of each field",
    "types": "name -> fields of each model that types of fields name",
}
"""Keys of a state defined as data."""
FIELD_KEYS: Mapping[str, str] = {
    "type": "the type, such as list[str]",
    "reducer": "how an update changes the value; without one it replaces it",
    "default": "the value at the start; without one a run needs an input for it",
    "description": "what it is, for people",
}
"""Keys of a field of such a state."""


class PlainSchema(GenerateJsonSchema):
    """Generates a JSON schema that is empty, instead of failing, for a type without a schema."""

    def handle_invalid_for_json_schema(self, schema: object, error_info: str) -> JsonSchemaValue:
        return {}

    def encode_default(self, dft: object) -> Any:
        return None  # defaults are written next to the schema

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def type_schema(annotation: Any, mode: Literal["validation", "serialization"]) -> JsonObject | None:
    """Return the JSON schema of a type's values, by the names of fields; None if it would be empty."""
    try:
        found = TypeAdapter(annotation).json_schema(by_alias=False, mode=mode, schema_generator=PlainSchema)
    except PydanticUserError:
        return None
    return found if found.keys() - {"title", "description"} else None


def class_data(schema: StateSchema) -> JsonObject:
    """Return a state schema as JSON, derived from its class."""
    cls = schema.cls
    assert cls is not None
    types = cls.model_json_schema(by_alias=False, schema_generator=PlainSchema)
    properties = types.get("properties", {})
    fields = {name: _field_data(schema.field(name), properties.get(name, {})) for name in schema.fields}
    data: dict[str, object] = {"name": schema.name, "ref": schema.ref, "fields": fields}
    if "$defs" in types:
        data["$defs"] = types["$defs"]
    return data


def start_form(schema: StateSchema, named: Sequence[str] | None = None) -> JsonObject:
    """Return the JSON schema of a run's input: an object with the fields that the input may set.

    Args:
        schema: the state.
        named: the fields that the graph's `input` names, the `x-input` of the form; None for all fields of the state.
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
        "type": "object",
        "title": schema.name,
        "properties": properties,
        "additionalProperties": False,
        "required": [name for name in names if specs[name].get("required")],
        "x-input": list(named or ()),
    }
    if "$defs" in data:
        form["$defs"] = data["$defs"]
    return form


def fields_form(schema: StateSchema, names: Collection[str], *, update: bool = False) -> dict[str, Any]:
    """Return the JSON schema of an object with some fields of a state: of their values, or of updates."""
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
        except Exception:  # a factory of the user, which may need the other fields
            first, second = None, 0
        if first == second:  # a factory that returns a new value each time has no default to write
            data["default"] = first
    return data


def schema_from_data(data: JsonObject, *, resolve: bool | Trust = False) -> StateSchema:
    """Make a state schema from JSON.

    Args:
        resolve: whether references are followed; a `Trust` decides for each of them.

    Raises:
        GraphError: the data does not describe a state.
        GraphUnknown: `resolve` is true and a reference cannot be imported.
        UntrustedCode: `resolve` is a `Trust` that refuses a reference.
    """

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
    """Return the schema of a state whose class is not loaded: any named field exists and accepts any value."""

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
        return old  # the journal contains the results of reducers that are code

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


# -- states defined as data -------------------------------------------------------------------------------------


def inline_schema(data: JsonObject, trust: Trust | None = None) -> StateSchema:
    """Return the schema of a state defined as data: `{"name": "Essay", "fields": {"topic": "str"}}`.

    A field is a type text, or a mapping with `type`, and optionally `reducer`, `default` and `description`. `types`
    defines the models that types name: name -> fields.

    Raises:
        GraphError: a field is not written in this form; the error names all such fields.
    """

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
        # A field may be named `copy` although models have a method with that name.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute")
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
    """Raise `GraphError` if a file's name for a field would not work in graphs or prompts."""
    if isinstance(name, bool):
        raise GraphError(f"field name {name} is not a string; {BOOLEANS}")
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
            fix = f"did you mean {close!r}?" if close else f"there are {', '.join(known)} and 'module:function'"
            raise GraphError(f"field {name!r} names reducer {reducer!r}: {fix}")
    from pydantic import Field as PydanticField

    description = spec.get("description")
    return kind, PydanticField(description=description if isinstance(description, str) else None, **default)


def _leave_unresolved(field: Field, spec: object) -> None:
    assert isinstance(spec, Mapping)
    field.reducer, field.portable = str(spec["reducer"]), False
    field.reduce = lambda old, new: old
