"""What strangers wrote, made safe to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.render import lines, plain, redact, told

KEY = "sk-" + "a1B2" * 8


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("two\n\tlines\r\n", "two lines"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("bell\x07 null\x00 del\x7f", r"bell\u0007 null\u0000 del\u007f"),
        ("admin\u202etxt.exe", r"admin\u202etxt.exe"),
        ("\u2066iso\u2069lated\u200f", r"\u2066iso\u2069lated\u200f"),
        ("a\u200bb\ufeffc\u00add", r"a\u200bb\ufeffc\u00add"),
        ("\U000e0041tag", r"\U000e0041tag"),
        ("a\u2028b", "a b"),
        ("lone\ud800", r"lone\ud800"),
        ("no\uffff", r"no\uffff"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d💻 naïve 東京", "👩\u200d💻 naïve 東京"),
        ("z" + "\u0301" * 6, "z" + "\u0301" * 4 + r"\u0301\u0301"),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_cut() -> None:
    assert plain("a long sentence", 8) == "a long…"
    assert plain("short", 8) == "short"


def test_lines_keep_their_breaks() -> None:
    assert lines("one\n\x1b[2Jtwo\r\nthree") == "one\ntwo\nthree"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key {KEY}!", "key [redacted]!"),
        (f"Authorization: Bearer {KEY[3:]}", "Authorization: Bearer [redacted]"),
        ("postgres://ann:hunter2@host/db", "postgres://ann:[redacted]@host/db"),
        ('{"api_key": "abcd1234"}', '{"api_key": [redacted]}'),
        ("PASSWORD=hunter22 next", "PASSWORD=[redacted] next"),
        ("ghp_" + "x" * 36, "[redacted]"),
        ("\\nghp_" + "x" * 36, "\\n[redacted]"),  # as JSON writes a line break
        ("\\u200bsk-" + "x" * 36, "\\u200b[redacted]"),
        ("\\x7fAKIA" + "ABCD" * 4, "\\x7f[redacted]"),
        ("\\teyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "\\t[redacted]"),
        ("\\nBearer " + "x" * 20, "\\nBearer [redacted]"),
        ("a task-" + "x" * 36, "a task-" + "x" * 36),
        ("AKIA" + "ABCD" * 4, "[redacted]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "[redacted]"),
        ("api_key=env:OPENAI_API_KEY", "api_key=env:OPENAI_API_KEY"),
        ("api_key='env:OPENAI_API_KEY'", "api_key='env:OPENAI_API_KEY'"),
        ("max_tokens: 12", "max_tokens: 12"),
        ("password: null", "password: null"),
        ("the secret garden", "the secret garden"),
        ("see https://example.org/a:b", "see https://example.org/a:b"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_secret_is_blanked_before_the_text_is_cut() -> None:
    assert told(f"the key {KEY}", 14) == "the key [reda…"
    assert told(f"\x1b[1m{KEY[:10]}\x1b[0m{KEY[10:]}") == "[redacted]"


def test_redacting_a_long_text_is_quick() -> None:
    assert redact("a-" * 50_000) == "a-" * 50_000


_PIECES = st.sampled_from(
    [
        "sk-" + "a" * 20, "Bearer ", "bearer", "password=", 'token="', "'", '"', "eyJaaaaaaaaaa", ".bbbbbbbbbb", ".",
        "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "postgres://u:", "@host", " ", "\n", "x/", "-", "]",
        "[", "[redacted]", "env:", "none", "AKIAABCDABCDABCDABCD", "ghp_" + "b" * 30, "abcd", ":", "=", "secret",
        "api_key",
    ]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


def test_a_value_that_holds_a_blanked_part_is_blanked_as_one() -> None:
    assert redact("password=x/" + "sk-" + "a" * 20) == "password=[redacted]"
    assert redact(redact("token: Bearer abcdefghijklmnop")) == "token: [redacted] [redacted]"
    assert redact(f'{{"api_key": "{KEY}"}}') == '{"api_key": [redacted]}'


def test_a_web_token_is_found_wherever_its_word_begins() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"
    for before in ("", "x-", "a-b-", "-", "eyJ-", "("):
        assert "c2ln" not in redact(before + token)
