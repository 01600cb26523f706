"""Requests to models in journals: each part in full once, by number later, and read in full again."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.json import FrozenObject, frozen
from orchestrator.kernel.ledger import Ledger
from orchestrator.kernel.records import Diverged, EffectIntended, decode, encode
from orchestrator.kernel.requests import MOST_PARTS, Requests, shortened


def said(content: str) -> FrozenObject:
    return frozen({"role": "user", "content": content})


def offered(name: str) -> FrozenObject:
    return frozen({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})


def intent(seq: int, request: dict[str, Any], kind: str = "model") -> EffectIntended:
    place: dict[str, Any] = {"seq": seq, "ts": 0.0, "activation": "a", "node": "n", "key": f"k{seq}"}
    return EffectIntended(**place, kind=kind, name="m", effect="idempotent", digest="d", request=request)  # type: ignore[arg-type]


def journal(requests: list[dict[str, Any]]) -> list[EffectIntended]:
    """The intents of these requests, in the order in which they are journaled."""
    ledger, found = Ledger(), []
    for seq, request in enumerate(requests, 1):
        record = intent(seq, shortened(request, ledger.parts))
        ledger.intend(record)
        read = decode(encode(record))
        assert isinstance(read, EffectIntended)
        found.append(read)
    return found


def whole(records: list[EffectIntended]) -> list[dict[str, Any]]:
    """The requests of a journal in full, without the digests of their messages."""
    requests = Requests(records)
    found = [requests.whole(record) for record in records]
    for one in found:
        one["messages"] = [
            {key: part for key, part in message.items() if key != "digest"} for message in one["messages"]
        ]
    return found


def test_a_growing_conversation_adds_only_what_is_new() -> None:
    talk, tools = [said(str(number)) for number in range(9)], [offered("add"), offered("sub")]
    asked = [{"messages": talk[:end], "tools": tools, "output": offered("out")} for end in (2, 4, 6, 9)]
    records = journal(asked)
    assert whole(records) == asked
    last = records[-1].request
    assert [list(part) for part in last["messages"]] == [["ref"], ["ref"], *[["role", "content", "digest"]] * 3]
    assert [last["messages"][0], last["messages"][1]] == [{"ref": [0, 2]}, {"ref": [5, 9]}]
    assert (last["tools"], last["output"]) == ([{"ref": [2, 4]}], {"ref": [4, 5]})


@given(st.lists(st.tuples(st.lists(st.integers(0, 6)), st.lists(st.integers(0, 3)), st.integers(0, 2)), max_size=12))
def test_every_request_is_read_as_it_was_asked(shapes: list[tuple[list[int], list[int], int]]) -> None:
    """Compacted conversations, changed heads, repeated messages, and tools that differ from call to call."""
    asked = [
        {"messages": [said(str(one)) for one in messages]}
        | ({"tools": [offered(f"t{one}") for one in tools]} if tools else {})
        | ({"output": offered(f"o{output}")} if output else {})
        for messages, tools, output in shapes
    ]
    records = journal(asked)
    assert whole(records) == asked
    parts = {part.digest for one in asked for part in (*one["messages"], *one.get("tools", ()))}
    in_full = sum(
        "digest" in item for one in records for item in (*one.request["messages"], *one.request.get("tools", ()))
    )
    assert in_full == len(parts), "each message and tool is in the journal once"


def test_journals_of_earlier_versions_are_read() -> None:
    first, tool = said("one"), offered("add")
    old = [
        intent(1, {"messages": [{**first, "digest": first.digest}], "tools": [tool]}),
        intent(2, {"messages": [{"ref": first.digest}, {**said("two"), "digest": "x"}], "tools": [tool]}),
    ]
    assert whole(old) == [{"messages": [first], "tools": [tool]}, {"messages": [first, said("two")], "tools": [tool]}]
    ledger = Ledger()
    for record in old:
        ledger.intend(record)
    new = intent(3, shortened({"messages": [first, said("three")], "tools": [tool]}, ledger.parts))
    assert new.request["messages"][0] == {"ref": [0, 1]}
    assert whole([*old, new])[-1] == {"messages": [first, said("three")], "tools": [tool]}


@pytest.mark.parametrize(
    "ref",
    [
        [5, 6],
        [1, 3],
        [1, 1],
        [1, 0],
        [-1, 1],
        [0, 10**30],
        [0],
        [0, 1, 2],
        ["0", "1"],
        [True, 2],
        {"a": 1},
        None,
        1.5,
        "x",
    ],
)
def test_what_the_journal_does_not_have_before_a_request_is_said_in_its_place(ref: object) -> None:
    """References that lead nowhere or forward, and other things in their place."""
    records = [
        intent(1, {"messages": [{**said("one"), "digest": "1"}]}),
        intent(2, {"messages": [{"ref": ref}], "tools": [{"ref": ref}], "output": {"ref": ref}}),
        intent(3, {"messages": [{**said(str(n)), "digest": f"x{n}"} for n in range(9)]}),
    ]
    found = Requests(records).whole(records[1])
    if ref is None:
        assert found["messages"] == [{"ref": None}]
        return
    for part in (*found["messages"], *found["tools"], found["output"]):
        assert part["role"] == "missing"
        assert "has no parts" in part["content"]
        assert len(part["content"]) < 200


def test_a_long_chain_of_references_is_read_in_one_step() -> None:
    """10,000 requests, each with all messages before it: the last one is read without reading the others."""
    asked: list[dict[str, Any]] = [
        {"messages": [{"ref": [0, n]}, {**said(str(n)), "digest": str(n)}]} for n in range(10_000)
    ]
    asked[0]["messages"] = asked[0]["messages"][1:]
    records = [intent(seq, one) for seq, one in enumerate(asked, 1)]
    requests = Requests(records)
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        assert len(requests.whole(records[-1])["messages"]) == 10_000
    finally:
        sys.setrecursionlimit(depth)


def test_a_short_record_cannot_make_a_request_of_any_length() -> None:
    first = intent(1, {"messages": [{**said(str(n)), "digest": str(n)} for n in range(1000)]})
    record = intent(2, {"messages": [{"ref": [0, 1000]}] * 5000})
    found = Requests([first, record]).whole(record)["messages"]
    assert len(found) <= MOST_PARTS + 5000
    assert found[-1]["role"] == "missing"


def test_other_effects_and_other_values_are_no_parts() -> None:
    ledger = Ledger()
    for seq, request in enumerate(({"messages": 5}, {"messages": [3, {"digest": 4}]}, {"tools": [{"digest": "x"}]}), 1):
        ledger.intend(intent(seq, request))
    ledger.intend(intent(9, {"messages": [{"digest": "x"}]}, "effect"))
    assert ledger.parts == {}
    place: dict[str, Any] = {"seq": 10, "ts": 0.0, "activation": "a", "node": "n"}
    asked = {"messages": [{**said("x"), "digest": "x"}]}
    at_odds = Diverged(**place, kind="model", name="m", digest="d", request=asked)
    assert Requests([at_odds]).whole(at_odds)["messages"] == [{**said("x"), "digest": "x"}]
