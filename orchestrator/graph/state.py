"""The state of a graph: its fields, how they take updates, and how values become JSON and back.

The kernel keeps values as a dict from field name to Python value (or to JSON, where the class is not at hand).
What the journal holds is JSON, always. Nodes get an instance of the state class that shares nothing mutable with
the kernel's values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.errors import InvalidInput, InvalidUpdate, SecretInState
from orchestrator.graph.codec import Unfit, explain, refuse_secrets
from orchestrator.graph.fields import Field, fields_of
from orchestrator.graph.reducers import Extend, Replace
from orchestrator.graph.refs import ref_of
from orchestrator.graph.shared_list import listed
from orchestrator.graph.trust import Trust
from orchestrator.graph.views import Views
from orchestrator.jsontypes import JsonObject

_set = object.__setattr__
_KEPT = "__orchestrator_schema__"


@dataclass(frozen=True, slots=True)
class StateField:
    """What the kernel needs to know of one field."""

    name: str
    reducer: str = ""
    """`append`, ... or `module:attr`; empty for a plain field."""
    local: bool = False
    """A branch's own: a join restores the value that it had at the fork."""
    portable: bool = True
    """Whether folding the field's JSON without any code gives the same as folding its values."""

    @property
    def plain(self) -> bool:
        """Whether the last writer in sequence wins, and branches that both write it are in conflict."""
        return self.reducer == ""


class StateSchema:
    """All about one state class, worked out once. Make it with `StateSchema.of` or `StateSchema.from_data`."""

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
            inline: the data of a state that was written as data; None for a class.
            stored: the stored data of a state without its class.
        """
        self.name = name
        self.cls = cls
        self.ref = ref
        """`module:attr` of the class, None for one that cannot be imported."""
        self.inline = inline
        """The data of a state that was written as data, else None."""
        self._stored = stored
        self._fields = dict(fields)
        self.fields: Mapping[str, StateField] = {
            field.name: StateField(field.name, field.reducer, field.local, field.portable) for field in fields.values()
        }
        self.coded = tuple(field.name for field in fields.values() if not field.portable)
        """Fields that only code can fold."""
        self.summed = tuple(f.name for f in fields.values() if f.reducer == "add" and f.annotation in (int, float))
        """Fields that are sums of numbers, which can grow beyond what JSON can say."""
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
            cls.remember(state, found)  # on the class, so that both are forgotten together
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

        A state that was written as data gets its class back. The values of any other state stay JSON.

        Args:
            data: the result of `data()`.
            resolve: whether to import the class; a `Trust` decides for each reference.

        Returns:
            The schema.
        """
        from orchestrator.graph.statedata import schema_from_data

        return schema_from_data(data, resolve=resolve)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateSchema):
            return NotImplemented
        written = self.inline is not None or self.cls is None  # as data; a class is equal to itself alone
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
        faults = [self._unknown(name) for name in given if name not in self._names]
        values: dict[str, object] = {}
        checked: Collection[str] = ()
        if self.cls is None:
            values = {**{n: f.default() for n, f in self._fields.items() if not f.required}, **given}
            faults += [f"field {n!r} is missing" for n in self._fields if n not in values]
        else:
            try:
                instance = self.cls.model_validate(
                    {name: value for name, value in given.items() if name in self._names}, by_alias=True, by_name=True
                )
                values = {name: getattr(instance, name) for name in self._fields}
                checked = instance.model_fields_set
            except ValidationError as error:
                _refuse_secrets_in(given)
                faults.append(explain(error))
        found: dict[str, object] = {}
        if not faults:
            for name, field in self._fields.items():
                try:
                    if name in checked:
                        found[name] = field.codec.write(values[name])
                    else:
                        found[name] = field.codec.encode(values[name], validators=False)
                except Unfit as error:
                    faults.append(f"field {name!r}: {error}")
                except SecretInState as error:
                    raise SecretInState(f"field {name!r}: {error}") from None
        if faults:
            raise InvalidInput(f"input of {self.name}: {'; '.join(faults)}")
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
        """The same of values that are only looked at: it is not checked whether they could be stored."""
        return {name: field.codec.show(listed(values[name])) for name, field in self._fields.items() if name in values}

    def encode_update(self, update: Mapping[str, object] | None) -> tuple[JsonObject, dict[str, str]]:
        """Validate an update field by field and write it as JSON.

        Args:
            update: the new values by field; None: no update.

        Returns:
            The JSON of the update, and for each field that its reducer does not fold in the usual way how it is taken:
            `replace` or `extend`.

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
        return f"there is no field {name!r} (the fields are {', '.join(self.fields)})"

    def apply(self, values: Mapping[str, object], update: JsonObject, ops: Mapping[str, str]) -> dict[str, object]:
        """Reduce a journaled update into values. Changes nothing in place.

        Args:
            values: the old values.
            update: the JSON of the update, as of `encode_update`.
            ops: how fields are taken, as of `encode_update`.

        Returns:
            The new values.
        """
        new = dict(values)
        for name, value in update.items():
            field = self._fields.get(name)
            if field is None:
                continue  # a field that the state had when this was journaled
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
        """Return as JSON the fields that only code can fold.

        Args:
            values: the values.
            fields: the names of the fields to look at.
            checked: whether the values must be of their fields' types. Those of journals need not be.

        Returns:
            The JSON of those of the fields; None if there are none.

        Raises:
            InvalidUpdate: a reducer returned a value that is not of the field's type, or has no JSON form.
        """
        found: dict[str, object] = {}
        for name in fields:
            field = self._fields.get(name)
            if field is not None and not field.portable and name in values:
                value = listed(values[name])
                try:
                    found[name] = field.codec.encode(value, validators=False) if checked else field.codec.write(value)
                except Unfit as error:
                    mend = "return the field's new value" if value is None else "return a value of the field's type"
                    raise InvalidUpdate(
                        f"field {name!r}: the result of its reducer {field.reducer}: {error}: {mend}"
                    ) from None
        return found or None

    def check_sums(self, values: Mapping[str, object], fields: Iterable[str]) -> None:
        """Check sums of numbers.

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

        Fields of mutable types are copied when they are first read, so a view costs only what is read. Values of types
        that declare themselves frozen are shared. Without a class it is an object with the same attributes.

        Args:
            values: the values.
            reads: the only fields to show; reading another one raises an `AttributeError` that says so. None: all.

        Returns:
            The view.
        """
        return self._views.view(values, reads)

    def check(self, values: Mapping[str, object]) -> None:
        """Check what reducers made, and run the class's validators of the whole state.

        Args:
            values: the values.

        Raises:
            InvalidUpdate: a value is not of its field's type, or a validator rejects the state.
        """
        self.reduced(values, self.coded)
        self.check_sums(values, self.summed)
        if not self._whole or self.cls is None:
            return
        try:
            self.cls.model_validate(self.view(values).__dict__, by_alias=True, by_name=True)
        except ValidationError as error:
            raise InvalidUpdate(f"state {self.name}: {explain(error)}") from None
        except Exception as error:  # of a validator of the user's
            raise InvalidUpdate(f"state {self.name}: its validator raised {type(error).__name__}: {error}") from error

    # -- data --------------------------------------------------------------------------------------------------

    @cached_property
    def _data(self) -> JsonObject:
        from orchestrator.graph.statedata import class_data

        return self._stored or self.inline or class_data(self)

    def data(self) -> JsonObject:
        """Everything about the state as JSON: its name, fields, types, reducers, defaults and `ref`."""
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
