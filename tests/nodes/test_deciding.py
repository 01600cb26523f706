"""Replies with one reading are read, and nothing in them is evaluated."""

from __future__ import annotations

import pytest

from orchestrator.errors import AgentError
from orchestrator.nodes.choose_args import describe
from orchestrator.nodes.model_decision import json_object


@pytest.mark.parametrize(
    "reply",
    [
        "{'a': 1}",
        '{"a": 1,}',
        'Here you are: {"a": 1}',
        '{"a": 1}',
        ' {"a": 1}\n',
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}\n```',
        '```JSON\r\n{"a": 1}\r\n```  ',
    ],
)
def test_an_object_is_read_also_in_a_fence(reply: str) -> None:
    assert json_object(reply, "choose_args") == {"a": 1}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("a = 1", "is not JSON"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "'a' occurs twice in it"),
        ('{"a": 1} or {"a": 2}', "contains several JSON values"),
        ("```json\nnothing\n```", "is not JSON"),
        ("[1]", "is JSON but not an object"),
        ("null", "is JSON but not an object"),
        ("", "is not JSON"),
    ],
)
def test_anything_else_is_an_agent_error(reply: str, fault: str) -> None:
    with pytest.raises(AgentError, match=fault):
        json_object(reply, "choose_args")


def test_a_long_reply_is_quoted_in_part() -> None:
    with pytest.raises(AgentError) as caught:
        json_object("x" * 5000, "choose_args")
    assert len(str(caught.value)) < 400


def test_parameters_are_told_with_type_meaning_and_default() -> None:
    schema = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "Python code\n  to run"},
            "timeout": {"type": "integer", "description": "Seconds", "default": 60},
            "mode": {"enum": ["fast", "slow"], "default": "fast"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["code"],
    }
    assert describe(schema).splitlines() == [
        "code (string, required): Python code to run",
        "timeout (integer, optional, default 60): Seconds",
        'mode (one of "fast", "slow", optional, default "fast")',
        'tags ({"items":{"type":"string"},"type":"array"}, optional, default [])',
    ]
