"""Rows from files and collections: what they may be, and how faults are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InvalidInput
from orchestrator.evaluation import ExpectedCall, Fields, Row
from orchestrator.evaluation.data import MAX_ROW, RowFault, source_of

pytestmark = pytest.mark.anyio


async def read(data: Any, **fields: Any) -> list[Row | RowFault]:
    return [one async for one in source_of(data, Fields(**fields)).entries()]


async def test_rows_of_json_lines_have_an_id_an_input_and_what_is_expected(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('\ufeff{"id": 7, "question": "q", "answer": "a"}\n\n{"input": {"a": 1}, "calls": ["add"]}\n')
    one, two = await read(file)
    assert isinstance(one, Row)
    assert isinstance(two, Row)
    assert (one.key, one.input, one.expected, one.line) == ("7", "q", "a", 1)
    assert (two.input, two.expected, two.calls, two.line) == ({"a": 1}, None, (ExpectedCall("add"),), 3)
    assert two.key.startswith("#")


async def test_rows_of_csv(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('id,question,answer,calls\n1,"two\nlines",=1+1,add multiply\n2,q,b\n3,q,c,\n')
    one, two, three = await read(file)
    assert isinstance(one, Row)
    assert (one.input, one.expected, one.line) == ("two\nlines", "=1+1", 3)
    assert one.calls == (ExpectedCall("add"), ExpectedCall("multiply"))
    assert str(two) == "line 4: it has 3 cells, and the first line has 4"
    assert isinstance(three, Row)
    assert three.calls is None


async def test_a_cell_of_csv_may_be_as_long_as_a_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(f"question,answer\n{'q' * 500_000},a\n{'q' * MAX_ROW},b\n")
    one, two = await read(file)
    assert isinstance(one, Row)
    assert len(str(one.input)) == 500_000
    assert "line 3: it is not CSV in UTF-8, and the rest is not read: it has more than 1,000,000 bytes" in str(two)


async def test_only_some_names_of_fields_are_compared_with_a_missing_one() -> None:
    names = [f"field {at}" for at in range(1000)]
    near, far = await read([dict.fromkeys(["inputs", *names], 1), dict.fromkeys([*names, "inputs"], 1)])
    assert "did you mean 'inputs'?" in str(near)
    assert "did you mean" not in str(far)


async def test_a_collection_is_read_as_often_as_needed_like_a_data_set_of_hugging_face() -> None:
    class Dataset:
        class info:  # noqa: N801  as in `datasets`
            dataset_name = "gsm8k"

        def __iter__(self) -> Any:
            yield from ({"question": str(at), "answer": at} for at in range(250))

    source = source_of(Dataset())
    assert source.name == "gsm8k"
    for _ in range(2):
        assert [one.expected async for one in source.entries() if isinstance(one, Row)] == [*range(250)]
    with pytest.raises(InvalidInput, match="can be read only once"):
        source_of(iter([{"question": "q"}]))


async def test_equal_rows_without_an_id_are_told_apart_and_an_id_may_occur_once() -> None:
    one, two, three, four = await read(
        [{"input": "q"}, {"input": "q"}, {"id": "x", "input": "a"}, {"id": "x", "input": "b"}]
    )
    assert isinstance(one, Row)
    assert isinstance(two, Row)
    assert isinstance(three, Row)
    assert two.key == f"{one.key}-2"
    assert str(four) == "line 4: its id 'x' occurred before"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"input": "q"', "it is not JSON in UTF-8"),
        ('{"input": NaN}', "NaN is no JSON"),
        ("[" * 5000, "nested"),
        ('{"input": ' + "[" * 170 + "]" * 170 + "}", "nested deeper"),
        ('["q"]', "it is of type list: a row is an object with fields"),
        ('{"text": "q"}', "it has no field 'input' or 'question' or 'prompt'"),
        ('{"inputs": "q"}', "did you mean 'inputs'?"),
        ('{"input": ""}', "its input is empty"),
        ('{"id": [1], "input": "q"}', "its id is of type list"),
        ('{"id": "a\\u0007", "input": "q"}', "printable"),
        ('{"input": "q", "calls": 3}', "its field 'calls' is of type int: use a list"),
        ('{"input": "q", "calls": [{"name": "x"}]}', "neither the name of a tool"),
        ('{"input": "' + "x" * MAX_ROW + '"}', "more than 1,000,000 bytes"),
        (b'{"input": "\xff"}', "it is not JSON in UTF-8"),
    ],
)  # fmt: skip
async def test_a_bad_row_is_said_with_its_line_and_the_next_one_is_read(
    tmp_path: Path, line: str | bytes, fault: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"input": "a"}\n' + (line if isinstance(line, bytes) else line.encode()) + b'\n{"input": "b"}\n')
    one, two, three = await read(file)
    assert isinstance(one, Row)
    assert isinstance(three, Row)
    assert isinstance(two, RowFault)
    assert two.line == 2
    assert fault in two.fault
    assert len(two.fault) < 400


async def test_a_file_that_cannot_be_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        source_of(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match=r"ends in \.jsonl or \.csv"):
        source_of(tmp_path / "rows.xlsx")
    with pytest.raises(InvalidInput, match="did you mean 'arithmetic'"):
        source_of("arithmetics")
    assert len(await read("arithmetic")) == 60
