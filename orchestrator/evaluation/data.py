"""Data of an evaluation: rows from JSON Lines, CSV, any collection of mappings, or recorded runs.

Data is a stranger's: rows are bounded in size, and a bad one is an error with its line. Rows are read in batches off
the event loop, and none is kept.
"""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol, TypeAlias, cast

from anyio import to_thread

from orchestrator.errors import InvalidInput
from orchestrator.json import canonical, deeper_than, digest
from orchestrator.spelling import did_you_mean
from orchestrator.values import MAX_DEPTH

MAX_ROW = 1_000_000
"""Maximum number of bytes of a row."""
MAX_KEY = 200
"""Maximum number of characters of the id of a row."""
SHOWN = 20
"""Bad rows that an error names."""
_COMPARED = 200
"""Names of fields that a missing one is compared with."""
_BATCH = 100
_INPUTS = ("input", "question", "prompt")
_EXPECTED = ("expected", "answer", "target", "output")
SAMPLES = ("arithmetic",)
"""Data that comes with the library, by name."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call of a tool that a row expects."""

    tool: str
    args: Mapping[str, object] | None = None
    """Arguments that it must have; others may be added. None: any."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of data: an input, and what is expected of the answer."""

    key: str
    """Its id, else a digest of its input."""
    input: object
    """The input of each graph."""
    expected: object = None
    """The right answer, or a list of right answers; None: the row has none."""
    calls: tuple[ExpectedCall, ...] | None = None
    """Calls of tools that are expected, in order; None: the row says nothing about them."""
    confirmed: tuple[str, ...] = ()
    """Tools whose calls a person must have approved."""
    line: int = 0
    """Its place in the data: a line of a file, else a number from 1."""
    recorded: bool = False
    """True if `expected` is the answer of a recorded run, where a list is one answer."""

    @property
    def digest(self) -> str:
        """Digest of the input, and of everything that is expected."""
        wanted = [self.expected, [[one.tool, one.args] for one in self.calls or ()], self.confirmed]
        return f"{digest(self.input)[:12]}-{digest(wanted)[:12]}"


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row that cannot be used."""

    line: int
    fault: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.fault}"


def invalid(name: str, faults: Iterable[RowFault], count: int) -> InvalidInput:
    """Return the error of data with rows that cannot be used.

    Args:
        name: the name of the data.
        faults: the first of its faults.
        count: number of all of them.
    """
    named = [f"  {fault}" for fault in islice(faults, SHOWN)]
    more = [f"  and {count - len(named):,} more"] if count > len(named) else []
    rows = "1 row that cannot" if count == 1 else f"{count:,} rows that cannot"
    return InvalidInput("\n".join([f"data {name!r} has {rows} be used, and nothing was called:", *named, *more]))


@dataclass(frozen=True)
class Fields:
    """Names of the fields of a row. None: the first of the usual names that the row has."""

    id: str = "id"
    """Rows without it are known by their input."""
    input: str | None = None
    """`input`, `question` or `prompt`. A mapping sets several fields of the graph."""
    expected: str | None = None
    """`expected`, `answer`, `target` or `output`."""
    calls: str = "calls"
    """A list of tool names, or of objects with `tool` and `args`."""
    confirmed: str = "confirmed"
    """A list of tool names."""

    def row(self, found: Mapping[str, object], line: int) -> Row:
        """Return a row.

        Args:
            found: its fields.
            line: its line.

        Raises:
            ValueError: it cannot be used.
        """
        key = found.get(self.id)
        value = found[_named(found, self.input, _INPUTS, "input")]
        if value is None or value == "":
            raise ValueError("its input is empty")
        given = _named(found, self.expected, _EXPECTED, "expected") if self.expected or _any(found, _EXPECTED) else ""
        row = Row(
            "" if key is None or key == "" else _key(key),
            value,
            found[given] if given else None,
            _calls(found.get(self.calls), self.calls),
            tuple(one.tool for one in _calls(found.get(self.confirmed), self.confirmed) or ()),
            line,
        )
        _check_size(found)
        return row


def _any(found: Mapping[str, object], names: Iterable[str]) -> bool:
    return any(name in found for name in names)


def _named(found: Mapping[str, object], wanted: str | None, usual: tuple[str, ...], what: str) -> str:
    names = usual if wanted is None else (wanted,)
    for name in names:
        if name in found:
            return name
    has = ", ".join(sorted(map(str, found))[:10]) or "none"
    close = did_you_mean(names[0], map(str, islice(found, _COMPARED)))
    hint = f"; name the field with --{what}" if wanted is None else ""
    raise ValueError(f"it has no field {' or '.join(map(repr, names))}{close or f': its fields are {has}'}{hint}")


def _key(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"its id is of type {type(value).__name__}: use a text or a whole number")
    text = str(value)
    if len(text) > MAX_KEY or not text.isprintable():
        raise ValueError(f"its id is not 1 to {MAX_KEY} printable characters")
    return text


def _calls(value: object, name: str) -> tuple[ExpectedCall, ...] | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):  # a cell of CSV
        value = _parsed(value) if value.lstrip().startswith("[") else value.split()
    if not isinstance(value, list | tuple):
        raise ValueError(f"its field {name!r} is of type {type(value).__name__}: use a list")
    return tuple(_call(one, name) for one in value)


def _call(value: object, name: str) -> ExpectedCall:
    if isinstance(value, str):
        return ExpectedCall(value)
    if isinstance(value, Mapping) and isinstance(value.get("tool"), str) and value.keys() <= {"tool", "args"}:
        args = value.get("args")
        if args is None or isinstance(args, Mapping):
            return ExpectedCall(cast("str", value["tool"]), args)
    raise ValueError(f"its field {name!r} has an entry that is neither the name of a tool nor {{tool, args}}")


def _check_size(found: Mapping[str, object]) -> None:
    if deeper_than(found, MAX_DEPTH):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        size = len(canonical(found).encode())
    except (TypeError, ValueError) as error:
        raise ValueError(f"it is not plain JSON: {error}") from None
    if size > MAX_ROW:
        raise ValueError(f"it has {size:,} bytes, and the limit is {MAX_ROW:,}")


Entry: TypeAlias = Row | RowFault
DataLike: TypeAlias = "str | PathLike[str] | Iterable[Mapping[str, Any]] | DataSource"


class DataSource(Protocol):
    """Rows that can be read several times. Files, collections and recorded runs are made into one."""

    @property
    def name(self) -> str:
        """Return the name of the data."""
        ...

    def entries(self) -> AsyncIterator[Entry]:
        """Yield the rows in order, and the faults of those that cannot be used."""
        ...


@dataclass(frozen=True)
class Rows:
    """Rows that a function reads."""

    name: str
    read: Callable[[], Iterator[tuple[int, object]]]
    """Yields line and fields of each row; a fault, as text, in place of fields."""
    fields: Fields = field(default_factory=Fields)

    async def entries(self) -> AsyncIterator[Entry]:
        """See `DataSource.entries`. Rows without an id get a digest; the second row with one input gets `-2`."""
        read = self._entries()
        while batch := await to_thread.run_sync(lambda: list(islice(read, _BATCH))):
            for entry in batch:
                yield entry

    def _entries(self) -> Iterator[Entry]:
        seen: dict[int, int] = {}
        for line, found in self.read():
            try:
                if isinstance(found, str):
                    raise ValueError(found)
                if not isinstance(found, Mapping):
                    raise ValueError(f"it is of type {type(found).__name__}: a row is an object with fields")
                row = self.fields.row(found, line)
            except ValueError as error:
                yield RowFault(line, str(error))
                continue
            key = row.key or f"#{digest(row.input)[:12]}"
            number = seen[hash(key)] = seen.get(hash(key), 0) + 1
            if number > 1 and row.key:
                yield RowFault(line, f"its id {key!r} occurred before")
                continue
            key = key if number == 1 else f"{key}-{number}"
            yield Row(key, row.input, row.expected, row.calls, row.confirmed, line)


def source_of(data: DataLike, fields: Fields | None = None) -> DataSource:
    """Return data as a source of rows.

    Args:
        data: the path of a `.jsonl` or `.csv` file; `arithmetic`, which comes with the library; a collection of
            mappings, such as a list or a data set of Hugging Face `datasets`; or a source.
        fields: names of the fields of its rows.

    Raises:
        InvalidInput: the file has another ending or does not exist, or the data can be read only once.
    """
    fields = fields or Fields()
    if isinstance(data, str | PathLike):
        return _file(Path(data), str(data), fields)
    if not isinstance(data, Iterable):
        return data
    if iter(data) is data:
        raise InvalidInput("data that is an iterator can be read only once: give a list, a file or another collection")
    info = getattr(data, "info", None)
    name = str(getattr(info, "dataset_name", None) or getattr(info, "builder_name", None) or "rows")
    return Rows(name, lambda: iter(enumerate(data, 1)), fields)


def _file(path: Path, given: str, fields: Fields) -> DataSource:
    if given in SAMPLES and not path.exists():
        sample = files("orchestrator.evaluation").joinpath(f"{given}.jsonl")
        return Rows(given, lambda: _json_lines(sample.open("rb")), fields)
    readers = {".jsonl": _json_lines, ".ndjson": _json_lines, ".csv": _csv_rows}
    read = readers.get(path.suffix.lower())
    if read is None:
        known = did_you_mean(given, SAMPLES)
        raise InvalidInput(f"data {given!r}: use a file whose name ends in .jsonl or .csv{known}")
    if not path.is_file():
        raise InvalidInput(f"data {given!r}: there is no such file")
    return Rows(path.stem, lambda: read(path.open("rb")), fields)


def _json_lines(file: IO[bytes]) -> Iterator[tuple[int, object]]:
    with file:
        number = 0
        while line := file.readline(MAX_ROW + 2):
            number += 1
            if len(line) > MAX_ROW + 1:
                _skip_line(file)
                yield number, f"it has more than {MAX_ROW:,} bytes"
                continue
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield number, _parsed(text)
            except ValueError as error:
                yield number, f"it is not JSON in UTF-8: {error}"


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(MAX_ROW)) and not rest.endswith(b"\n"):
        pass


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _csv_rows(file: IO[bytes]) -> Iterator[tuple[int, object]]:
    with file:
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))  # of the process; its default is 131,072
        reader = csv.reader(_text_lines(file), strict=True)
        try:
            names = next(reader, [])
            if len(set(names)) < len(names):
                yield 1, "a name of a column occurs twice"
                return
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(names):
                    yield reader.line_num, f"it has {len(cells)} cells, and the first line has {len(names)}"
                else:
                    yield reader.line_num, dict(zip(names, cells, strict=True))
        except (csv.Error, ValueError) as error:  # where the next row begins is not known
            yield reader.line_num + 1, f"it is not CSV in UTF-8, and the rest is not read: {error}"


def _text_lines(file: IO[bytes]) -> Iterator[str]:
    first = True
    while line := file.readline(MAX_ROW + 2):
        if len(line) > MAX_ROW + 1:
            raise ValueError(f"it has more than {MAX_ROW:,} bytes")
        yield line.decode("utf-8-sig" if first else "utf-8")
        first = False
