"""The commands about memory that runs share."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell


def test_items_are_put_found_and_deleted(shell: Shell) -> None:
    empty = shell("memory", "list")
    assert (empty.code, empty.out) == (0, "")
    assert shell("memory", "get", "users/42", "diet").code == 4
    assert shell("memory", "put", "users/42", "diet", "vegan, no nuts", "--expires", "30d").code == 0
    made = shell("memory", "put", "users/a%2Fb", "plan", "--input", '{"steps": [1, "tea"]}', "--json")
    assert made.code == 0, made.err
    assert (made.json["namespace"], made.json["value"], made.json["expires"]) == (
        ["users", "a/b"], {"steps": [1, "tea"]}, None,
    )  # fmt: skip
    listed = shell("memory", "list")
    assert listed.out.splitlines() == [
        "NAMESPACE    KEY   VALUE",
        'users/42     diet  "vegan, no nuts"',
        'users/a%2Fb  plan  {"steps": [1, "tea"]}',
    ]
    assert shell("memory", "list", "--namespaces").out.split() == ["users/42", "users/a%2Fb"]
    assert shell("memory", "list", "users/42", "--namespaces", "--json").json == [["users", "42"]]
    assert shell("memory", "get", "users/a%2Fb", "plan").out.strip() == '{"steps": [1, "tea"]}'
    assert shell("memory", "get", "users/42", "diet", "--json").json["expires"] > 1e9
    found = shell("memory", "search", 'nuts" OR (tea', "--json")
    assert [one["key"] for one in found.json] == ["plan", "diet"]
    assert shell("memory", "search", "nuts", "--in", "users/a%2Fb").out == ""
    assert shell("memory", "search", "nuts", "--in", "users").out.endswith('users/42   diet  "vegan, no nuts"\n')
    assert shell("memory", "delete", "users/42", "diet", "--json").json == {"deleted": ["users/42", "diet"]}
    assert shell("memory", "delete", "users/42", "diet").code == 4
    assert "0 items removed" in shell("memory", "prune").err
    assert shell("memory", "prune", "users", "--older-than", "0s", "--json").json == {"removed": 1}
    assert shell("memory", "list").out == ""


def test_secrets_are_blanked_where_they_are_shown(shell: Shell) -> None:
    shell("memory", "put", "a", "k", "--input", '{"password": "hunter2222"}')
    for words in (("list",), ("get", "a", "k"), ("list", "--json"), ("search", "hunter2222")):
        done = shell("memory", *words)
        assert done.code == 0
        assert "hunter" not in done.out
        assert "[redacted]" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("put", "a", "k"), "TEXT or --input"),
        (("put", "a", "k", "x", "--input", "1"), "TEXT or --input"),
        (("put", "a", "k", "--input", "{"), "not JSON"),
        (("put", "a", "k", "x", "--expires", "soon"), "use an age"),
        (("put", "a//b", "k", "x"), "a name of a namespace"),
        (("put", "", "k", "x"), "namespace"),
        (("put", "a", "", "x"), "the key of a memory item"),
        (("prune", "--older-than", "2026-01-01"), "use an age"),
    ],
)
def test_what_cannot_be_used_is_a_usage_error(words: tuple[str, ...], said: str, shell: Shell) -> None:
    done = shell("memory", *words)
    assert (done.code, said in done.err) == (2, True), done.err
