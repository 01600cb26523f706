"""The union of all records, and their JSON form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from orchestrator.kernel.records import effects, questions, run, steps
from orchestrator.kernel.records.base import RECORD_VERSION, JsonDict
from orchestrator.kernel.records.coded import coded_record

Record: TypeAlias = (
    run.RunStarted
    | steps.StepDone | steps.StepFailed | steps.StepRetried | steps.GraphOpened
    | effects.EffectIntended | effects.EffectSettled | effects.Diverged
    | questions.Asked | questions.Answered | questions.AnswersWithdrawn | questions.EventReceived
    | steps.TimerSet | steps.TimerFired
    | run.Paused | run.Resumed | run.Cancelled
    | steps.LimitSpent | effects.Spent | run.LimitsChanged
    | run.Forked | run.Migrated | run.Ended | run.Reopened
)  # fmt: skip

RECORD_TYPES: tuple[str, ...] = tuple(member.model_fields["type"].default for member in Record.__args__)
_WITH_RUN_ID = frozenset(
    member.model_fields["type"].default for member in Record.__args__ if "run_id" in member.model_fields
)
_adapter: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])
_validate: Callable[[object], Record] = _adapter.validator.validate_python
_ENDINGS = {name: f',"type":"{name}"}}'.encode() for name in RECORD_TYPES}


def encode(record: Record) -> bytes:
    """A record as compact JSON: without fields at their default, except `type`."""
    return record.__pydantic_serializer__.to_json(record, exclude_defaults=True)[:-1] + _ENDINGS[record.type]


def encode_unsealed(record: Record) -> bytes:
    """The part of `encode` that a seal signs: all but the seal."""
    written = record.__pydantic_serializer__.to_json(record, exclude_defaults=True, exclude={"seal"})
    return written[:-1] + _ENDINGS[record.type]


def record_from_fields(fields: JsonDict, run_id: str) -> Record:
    """A record from its fields; `run_id` fills that field if the record has one and `fields` leave it out.

    Raises:
        ValueError: this version does not know such a record (pydantic's `ValidationError` is one).
    """
    if fields.get("type") in _WITH_RUN_ID:
        fields = {"run_id": run_id, **fields}
    return _validate(fields)


def decode(data: bytes | str, texts: Mapping[str, str] | None = None) -> Record:
    """Read a record from its JSON form. One that was stored coded is a `CodedRecord`.

    Args:
        data: the JSON.
        texts: strings to put in place of the strings of the JSON that are their names.

    Raises:
        ValueError: this version does not know such a record (pydantic's `ValidationError` is one).
    """
    # Parsed first and validated then: only so are NaN and Infinity refused without a search of their own, which took
    # longer than all the rest in long texts. JSON does not have them, `encode` never writes them, and they break folds.
    try:
        fields = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        fields = _deep(data, error)
    if texts:
        fields = _filled(fields, texts)
    record = coded_record(fields) if type(fields) is dict and "cipher" in fields else _validate(fields)
    if record.v > RECORD_VERSION:
        raise ValueError(f"record version {record.v} is newer than {RECORD_VERSION}; update the library")
    return record


def _filled(value: object, texts: Mapping[str, str]) -> object:
    """JSON with texts in place of their names, which may be keys as well. It is changed in place."""
    todo: list[object] = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if not texts.keys().isdisjoint(one):
                items = [(texts.get(key, key), item) for key, item in one.items()]
                one.clear()
                one.update(items)
            places: Iterable[tuple[Any, object]] = one.items()
        elif isinstance(one, list):
            places = enumerate(one)
        else:
            continue
        for place, item in places:
            if isinstance(item, dict | list):
                todo.append(item)
            elif isinstance(item, str) and item in texts:
                one[place] = texts[item]  # of a key that is there: the mapping keeps its size
    return value


def _deep(data: bytes | str, error: ValueError) -> object:
    """Values nested deeper than pydantic reads, which earlier versions wrote: the standard library reads them."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    if "recursion limit" in str(error):
        with suppress(ValueError, RecursionError):
            return json.loads(data, parse_constant=refuse)
    _adapter.validate_json(data)  # raises what it raises for any other text that is no record
    raise error  # NaN or an infinity, which it reads
