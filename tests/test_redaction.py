"""Secrets are blanked by their look and by what stands before them, whatever the text, and little else is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import redaction
from orchestrator.redaction import BLANK, redact, redact_also, redacted

HEX = "0123456789abcdef" * 4
WORD = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hI5kL7nO9"
PEM = "-----BEGIN {0}PRIVATE KEY{1}-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END {0}PRIVATE KEY{1}-----"
PUTTY = (
    "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\nAAAAC3NzaC1lZDI1\n"
    "Private-Lines: 1\nAAAAIMnpxtERklrRlW\nPrivate-MAC: 00ff\n"
)
KEYS = [
    "sk-" + WORD, "sk-ant-api03-" + WORD, "sk-proj-" + WORD, "ghp_" + WORD, "gho_" + WORD, "github_pat_" + WORD,
    "glpat-" + WORD[:20], "glrt-" + WORD[:20], "gldt-" + WORD[:20], "glpat-" + WORD + ".01.1a2b3c4d5",
    "xoxb-1234567890-" + WORD[:20], "xoxe.xoxp-1-" + WORD, "xapp-1-A012345678-1234567890-" + HEX,
    "AKIA" + "ABCD" * 4, "ASIA" + "ABCD" * 4, "AIzaSy" + WORD[:33], "hf_" + WORD[:34], "sk_live_" + WORD[:24],
    "rk_test_" + WORD[:24], "npm_" + WORD[:36], "pypi-AgEIcHlwaS5vcmc" + WORD, "gsk_" + WORD, "xai-" + WORD,
    "pplx-" + WORD, "tvly-dev-" + WORD, "tvly-" + WORD[:32], "lsv2_pt_" + HEX[:32] + "_" + HEX[:10],
    "lsv2_sk_" + HEX[:32] + "_" + HEX[:10], "r8_" + WORD[:37], f"SG.{WORD[:22]}.{WORD}", "ya29.a0Af" + WORD,
    "ya29.c.b0Aa" + WORD, "GOCSPX-" + WORD[:28], "hvs.CAESI" + WORD, "hvb.AAAAAQ" + WORD, "dapi" + HEX[:32],
    "dapi" + HEX[:32] + "-2", "dop_v1_" + HEX, "doo_v1_" + HEX, "dor_v1_" + HEX, "shpat_" + HEX[:32],
    "shpca_" + HEX[:32], "shppa_" + HEX[:32], "shpss_" + HEX[:32], "lin_api_" + WORD[:40], "lin_oauth_" + HEX,
    "figd_" + WORD, "whsec_" + WORD[:32], "whsec_MfKQ9r8GKYqrTwjU+PD8ILPZ/o2LaLaSw==",
    "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN" * 3, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", PEM.format("", ""),
    PEM.format("RSA ", ""), PEM.format("OPENSSH ", ""), PEM.format("ENCRYPTED ", ""), PEM.format("PGP ", " BLOCK"),
    "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nP2/56wAA\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
]  # fmt: skip
"""Whole secrets, as their services write them."""
NAMED = [
    ("AccountName=a;AccountKey=@;EndpointSuffix=core.windows.net", WORD + "+/a=="),
    ("SharedAccessKeyName=RootManage;SharedAccessKey=@", WORD + "="),
    ("https://a.blob.core.windows.net/c?sv=2022-11-02&se=2026-01-01&sig=@&sp=r", WORD + "%2B%3D"),
    ('{"url": "https://a.blob.core.windows.net/c?sv=2022\\u0026sig=@"}', WORD + "%3D"),
    ("https://bucket.s3.amazonaws.com/k?X-Amz-Date=1&X-Amz-Signature=@", HEX),
    ("https://maps.example.com/json?q=rome&key=@&zoom=3", WORD),
    ("https://api.example.com/v1?key=@", "abcd1234"),
    ("https://hooks.slack.com/services/@", "T01234567/B01234567/" + WORD[:24]),
    ("https:\\/\\/hooks.slack.com\\/services\\/@", "T01234567\\/B01234567\\/" + WORD[:24]),
    ("https://discord.com/api/webhooks/123456789012345678/@", WORD + "-_" + WORD),
    ("https://discordapp.com/api/v10/webhooks/123456789012345678/@", WORD + "-_" + WORD),
    ("https://api.telegram.org/bot123456789:@/getMe", "A" + WORD[:34]),
    ("bot token is 1234567890:@ today", "AAH" + WORD[:32]),
    (PUTTY.replace("AAAAIMnpxtERklrRlW", "@"), "AAAAIMnpxtERklrRlW"),
    ("Cookie: @\r\nHost: a", "session=abc123; theme=dark"),
    ("set-cookie: @\nDate: x", "sid=31d4d96e407aad42; Path=/; HttpOnly"),
    ('{"Cookie": "@", "Host": "a"}', "session=abc123; theme=dark"),
    ("curl -H 'Cookie: @' https://a", "sid=b12; theme=dark"),
    ("curl -u ann:@ https://example.com/x", "hunter22"),
    ('curl -sS -X POST --user "ann:@" https://example.com', "hun"),
    ("curl https://example.com -uann:@", "hunter22"),
    ("curl \\\n  --proxy-user ann:@ \\\n  https://example.com", "hunter22"),
    ('["curl", "-u", "ann:@", "https://example.com"]', "hunter22"),
    ("machine api.example.com login ann password @", "hunter22"),
    ("machine api.example.com\n  login ann\n  account a\n  password @\n", "hunter22"),
    ("machine api.example.com password @ login ann", "hunter22"),
    ("default login ann password @", "hunter22"),
    ("machine a\\n  login ann\\n  password @\\n", "hunter22"),
    ('{\\"password\\": \\"@\\"}', "hunter22, or so"),
    ('{"body": "{\\"api_key\\": \\"@\\", \\"n\\": 1}"}', "abcd1234"),
    ('{\\\\\\"password\\\\\\": \\\\\\"@\\\\\\"}', "hunter22"),
    ("{\\'password\\': \\'@\\'}", "hunter22"),
    ('{\\"password\\": \\"@\\"}', 'hun\\\\\\"ter and more'),
    ('password="@', "hunter22"),  # cut off before its end
    ('"password": "@"', 'hun\\"ter 22'),
    ("password := '@'", "hunter22"),
    ("'password' => '@'", "hunter22"),
    ("passphrase: @", "hunter22"), ("pass phrase: @", "hunter22"), ("PASS_PHRASE=@", "hunter22"),
    ("passcode = @", "hunter22"), ("pswd: @", "hunter22"), ("pass-word: @", "hunter22"),
    ("Server=a;Uid=sa;Pwd=@;Encrypt=yes", "hunter22"), ("?user=ann&pwd=@&x=1", "hunter22"), ("DB_PWD=@\n", "hunter22"),
    ('{"pwd": "@"}', "hunter22"), ("pwd = '@'", "hunter22"), ('{\\"pwd\\": \\"@\\"}', "hunter22"),
    ('{"password": ["@"], "a": ["fine"]}', "hunter22"), ('{"api_keys": ["env:A", 7, ["@", "x"]]}', "abcd1234"),
    ('{"secret": {"kind": "word", "value": "@"}}', "hunter22"), ('{"password": {"old": "@", "new": "x"}}', "hunter22"),
    ('{"passwords": {"ann": "@", "bob": []}}', "hunter22"), ("{'token': ['@']}", "hunter22"),
    ('{"body": "{\\"passwords\\": [\\"@\\"], \\"a\\": \\"fine\\"}", "c": ["fine"]}', "hunter22"),
    ('{"password": [\n    "@",\n    "x"', 'hunter ] 22, \\" and more'), ('{"secrets": ["@', "hunter22"),
    ('{"a": [{"credentials": {"password": {"value": "@"}}}]}', "hunter22"),
    ("tokens: 12@", ".hunter22"),
    ("reset_tokens=@", "1234567890"),
    ("Authorization: Basic @", "dXNlcjpwYXNz"),
    ("authorization: bearer%20@", WORD),
    ("AUTHORIZATION: BEARER @", WORD),
    ("mongodb+srv://ann:@@cluster.example.com/db", "hunter22"),
    ("PA\u017f\u017fWORD=@", "hunter22"),
]  # fmt: skip
"""Texts in which `@` stands for a secret that is known by what surrounds it."""
HARMLESS = [
    "the secret garden", "a token of my esteem", "the password policy of the machine", "max_tokens: 12",
    "input_tokens=12345, output_tokens=678", '{"total_tokens": 123456, "prompt_tokens": 1000}', "max_tokens = 4096",
    "It took output_tokens: 1234.",
    "password: null", "api_key=env:OPENAI_API_KEY", "token = None", "secret: true", 'password: ""',
    "vivamus dapibus nec", "dapi0123", "the risk-free rate and a disk-usage-of-all-the-machines-here",
    "a task-list-for-the-whole-team", "Basic authentication is needed", "basic understanding of it",
    "The bearer characteristics.", "BASIC PROGRAMMING", "https://example.org/a?page=2&size=20",
    "https://example.org/a?key=value", "https://example.org/a?key=name&sort=asc", "https://example.org:8080/a:b",
    "see https://example.org/a:b@c", "git@github.com:ann/repo.git", "ann@example.com: hello",
    "123e4567-e89b-12d3-a456-426614174000", HEX, "d41d8cd98f00b204e9800998ecf8427e", "sha256:" + HEX,
    "ETag: \"33a64df5\"", "docker run -u 1000:1000 image", "sudo -u ann:staff ls",
    "curl -o out.txt https://example.org", "curl -u $USER:$PASS https://a", "Cookie: we use cookies here",
    "the cookie jar", "machine learning login page", "log in with password authentication", "default login page",
    "def f(key: str) -> None: ...", "for key, value in found.items():", "r8_x = 1", "SG.x.y", "hvs.x",
    "hf_hub_download(repo)", "npm_config_cache=/tmp/npm", "figd_ is a prefix",
    "pypi-some-rather-long-name-of-a-package-index", "sk_learn_test_values", "pplx-70b-online",
    "whsec_ and lin_api_ begin keys", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "-----BEGIN PGP PUBLIC KEY BLOCK-----\nx",
    "{\"a\": {\"b\": [1, 2.5, \"c\"]}}", "SharedAccessKeyName=RootManage",
    "https://github.com/ann/repo/settings/hooks/123456", "12:34:56 done", "00:1B:44:11:3A:B7", "Public-Lines: 6",
    "the Private-Lines of it", "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "eyJ is how tokens begin", "Grüße, naïve 東京 👩\u200d💻", "C:\\Users\\ann\\notes.txt", "2026-11-28T19:11:36Z",
    "x = y == z ? a : b", "PWD=/home/ann\nOLDPWD=/root", '{"PWD": "/home/ann", "pwd": "C:\\\\Users"}',
    'cd "$PWD"; pwd="$HOME"',
    "pwd: prints the working directory", "pwd = os.getcwd()", "run(command, pwd=path)", "the pass phrase is long",
    '{"password": {"type": "string", "description": "The password"}, "api_keys": {"type": "array", "title": "Keys"}}',
    '{"token": {"kind": "word", "value": "the"}, "tokens": ["Hello", "world"]}', '{"secrets": ["env:A", "a"]}',
    '{"secrets": [{"name": "default-token"}], "credentials": {"username": "annie"}}',
    '{"password": {"length": "long"}}',
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_blanked_as_a_whole(key: str) -> None:
    assert redact(key) == BLANK
    assert redact(f"it is {key}\nand so on") == f"it is {BLANK}\nand so on"
    assert key not in redact(json.dumps({"said": f"\n{key}\n"}))


@pytest.mark.parametrize(("text", "secret"), NAMED)
def test_a_secret_is_known_by_what_surrounds_it(text: str, secret: str) -> None:
    before, _, after = text.partition("@")
    shown = redact(before + secret + after)
    assert BLANK in shown
    assert not any(part in shown for part in re.split(r"[^\w]+", secret) if part and part not in text)
    assert redact(shown) == shown


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_what_a_name_in_an_object_says() -> None:
    given = {"Set-Cookie": "a=b12", "cookie": "oatmeal", "AccountKey": "abcd", "cookies": "a=b", "input_tokens": 12345}
    shown = {"Set-Cookie": BLANK, "cookie": BLANK, "AccountKey": BLANK, "cookies": "a=b", "input_tokens": 12345}
    assert redacted(given) == shown


def test_a_name_in_an_object_says_it_of_numbers_and_of_items_too() -> None:
    given = {
        "password": 12345678,
        "pin": 1234,
        "api_keys": ["abcd1234", ["efgh5678", 7]],
        "secret": True,
        "token": None,
    }
    shown = {"password": BLANK, "pin": 1234, "api_keys": [BLANK, [BLANK, 7]], "secret": True, "token": None}
    assert redacted(given) == shown
    assert redacted(shown) == shown
    harmless = {
        "input_tokens": 123456,
        "tokens": ["Hello", "world"],
        "secrets": ["env:A", "a"],
        "token": {"kind": "word"},
    }
    assert redacted(harmless) == harmless


def test_an_object_with_the_name_of_a_secret_holds_it_as_its_value() -> None:
    given = {
        "password": {"value": "hunter22", "kind": "word", "old": ["hunter11"]},
        "passwords": {"ann": "hunter22", "bob": 12345678},
        "api_keys": [{"name": "first", "value": "abcd1234"}],
        "pwd": "hunter22",
    }
    shown = {
        "password": {"value": BLANK, "kind": "word", "old": [BLANK]},
        "passwords": {"ann": BLANK, "bob": BLANK},
        "api_keys": [{"name": "first", "value": BLANK}],
        "pwd": BLANK,
    }
    assert redacted(given) == shown
    assert redacted(shown) == shown
    harmless = {
        "password": {"type": "string", "description": "The password"},
        "secrets": {"type": "array", "items": {"type": "string"}},
        "token": {"value": "the"},
        "credentials": {"username": "annie"},
        "PWD": "/home/ann",
    }
    assert redacted(harmless) == harmless


def test_values_in_json_are_blanked_alike_as_text_and_as_data() -> None:
    """Only the form differs: text that is no list or object is blanked with its quotes."""
    keys = ["hunter22", {"value": "hunter33", "name": "hunter44"}]
    given = {"a": {"secrets": {"x": keys, "y": "env:A"}}, "b": "fine"}
    assert json.loads(redact(json.dumps(given))) == redacted(given)


def test_values_inside_each_other_are_looked_at_once() -> None:
    deep = '{"password": [' * 50 + '"hunter22"' + "]}" * 50
    assert redact(deep) == deep.replace("hunter22", BLANK)
    assert redact('"secret": [' * 2_000).count("secret") == 2_000


def test_names_in_an_object_are_blanked_too() -> None:
    key, other = f"ghp_{'a1B2' * 9}", "password: hunter2secret"
    assert redacted({key: 1, "a": {other: [{key: 2}]}}) == {BLANK: 1, "a": {f"password: {BLANK}": [{BLANK: 2}]}}
    # Values stay apart, also from one with such a name.
    assert redacted({key: 1, f"{key}x": 2, f"{BLANK} 3": 3, f"{key}y": 4}) == {
        BLANK: 1, f"{BLANK} 2": 2, f"{BLANK} 3": 3, f"{BLANK} 4": 4,
    }  # fmt: skip
    assert redacted({3: key, "max_tokens": 12}) == {3: BLANK, "max_tokens": 12}


# -- work ----------------------------------------------------------------------------------------------------------

PARTS = st.sampled_from(
    [
        *(key for key in KEYS if "\n" not in key), *(text.replace("@", secret) for text, secret in NAMED), *HARMLESS,
        "sk-", "ghp_", "eyJ", "-eyJaaaaaaaa", ".bbbbbbbb", "bearer ", "token", "token:", "password=", "secret",
        "cookie: ", "&key=", "://", "a://b:", "@", "curl ", "-u a:", "machine a ", "login b ", "password ",
        "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "Private-Lines: 1", "Private-MAC:", "'", '"',
        '\\"', "\\\\\\", "\\n", " ", "\n", "a", "1", "-", "_", ":", "=", ";", "]", "[redacted]", "env:", "none",
        "abcd", "/", "pwd", "pwd=", '"secrets": [', '"password": {"value": ', "}", "[", ", ", "\u0130", "\u017f", "é",
    ]
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=12).map("".join)


@given(TEXTS)
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(TEXTS, st.integers(1, 60))
def test_pieces_in_which_a_text_is_searched_do_not_show(text: str, piece: int) -> None:
    whole = redact(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_PIECE", piece)
        assert redact(text) == whole


@pytest.mark.full
def test_a_secret_between_two_pieces_is_blanked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_PIECE", 256)
    for secret in (*KEYS, "password='" + "a b " * 2_000 + "'"):
        for before in range(0, 300, 7):
            shown = redact("a " * (before // 2) + "\n" + secret + "\n" + "a " * 20)
            assert shown.strip("a \n") in (BLANK, "password=" + BLANK)


def test_a_private_key_may_be_longer_than_a_piece() -> None:
    key = PEM.format("", "").replace("MIIE", "MIIE" * redaction._PIECE)
    assert redact(f"a {key} b {key}") == f"a {BLANK} b {BLANK}"
    assert redact(f"a {key[:-1]}") == f"a {BLANK}"


class Counted:
    """A pattern that keeps how many characters each of its searches may look at."""

    def __init__(self, pattern: re.Pattern[str], seen: list[int]) -> None:
        self._pattern, self._seen, self.groups = pattern, seen, pattern.groups

    def search(self, text: str) -> re.Match[str] | None:
        self._seen.append(len(text))
        return self._pattern.search(text)

    def finditer(self, text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
        self._seen.append(min(stop, len(text)) - start)
        return self._pattern.finditer(text, start, stop)


@pytest.mark.full
@pytest.mark.parametrize(
    "token", ["a b ", "a", "token: hunter2222 ", "-eyJaaaaaaaa", "curl -u a:hunter2222 ", "-----BEGIN PRIVATE KEY-----"]
)
def test_a_search_is_short_and_sees_each_character_about_once(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[int]] = {}

    def counted(value: object) -> object:
        if isinstance(value, re.Pattern):
            return Counted(value, seen.setdefault(value.pattern, []))
        return tuple(map(counted, value)) if isinstance(value, tuple) else value

    for name, value in vars(redaction).items():
        if isinstance(value, re.Pattern) or name in ("_IN_THIS_CASE", "_IN_ANY_CASE", "_PWD", "_BLOCKS"):
            monkeypatch.setattr(redaction, name, counted(value))
    of_keys = redaction._key_pattern
    monkeypatch.setattr(redaction, "_key_pattern", lambda start: counted(of_keys(start)))
    text = token * (3_000_000 // len(token))
    redact(text)
    assert len(seen) > 20
    for pattern, sizes in seen.items():
        assert max(sizes, default=0) <= 256 * 1024, pattern
        assert sum(sizes) <= 1.5 * len(text), pattern


def _begins_well(operations: Any) -> bool:
    """Whether a pattern begins with a literal or a set of characters, or with several literals to choose from."""
    name, value = operations[0]
    if str(name) == "SUBPATTERN":
        return _begins_well(value[-1])
    if str(name) == "BRANCH":
        return all(str(one[0][0]) == "LITERAL" for one in value[1])
    return str(name) in ("LITERAL", "IN")


def test_every_pattern_begins_with_what_is_found_at_the_speed_of_c() -> None:
    """A look at what surrounds each character takes fifty times as long."""
    patterns = [
        *map(redaction._key_pattern, redaction._KEYS), *redaction._IN_THIS_CASE, *redaction._IN_ANY_CASE,
        redaction._BEARER, redaction._CURL, redaction._CURL_USER,
        *redaction._PWD, redaction._HOLDS, redaction._NESTED,
        redaction._USERINFO, *(one for block in redaction._BLOCKS for one in block),
    ]  # fmt: skip
    for pattern in patterns:
        assert _begins_well(_parser.parse(pattern.pattern, pattern.flags)), pattern.pattern


def test_case_is_lost_and_places_stay() -> None:
    text = "".join(map(chr, range(0x110000)))
    assert len(redaction._lowered(text)) == len(text)
    assert redaction._lowered("PA\u017fSWORD \u0130\u0131 \u212aEY \u03a3") == "password ii key \u03c3"


def test_names_of_an_object_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    redaction._says_secret.cache_clear()
    rows: list[object] = [{"name": "a", "password": "abcd"} for _ in range(1_000)]
    assert redacted(rows) == [{"name": "a", "password": BLANK}] * 1_000
    assert redaction._says_secret.cache_info().misses <= 2


# -- patterns of the user --------------------------------------------------------------------------------------------


@pytest.fixture
def _own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_own", [])
    yield
    redaction._says_secret.cache_clear()


@pytest.mark.usefixtures("_own")
def test_patterns_of_the_user_are_blanked_too() -> None:
    redact_also(r"ACME-\d+")
    redact_also(re.compile(r"(?<=pin: )\w+", re.IGNORECASE))
    assert redact("a ACME-1, PIN: 1234, password=ACME-22x") == f"a {BLANK}, PIN: {BLANK}, password={BLANK}"
    assert redacted({"a": ["ACME-7"], "pin": "x"}) == {"a": [BLANK], "pin": "x"}
    assert redact("ACME-1") == BLANK


@pytest.mark.usefixtures("_own")
def test_no_pattern_of_the_user_blanks_names_of_fields_of_records() -> None:
    redact_also("[a-z0-9]+")
    assert redacted({"run_id": "a", "of 1": "b"}) == {"run_id": BLANK, f"{BLANK} {BLANK}": BLANK}


@pytest.mark.usefixtures("_own")
def test_a_pattern_of_the_user_leaves_what_is_blanked_alone() -> None:
    redact_also("[a-z]+")
    assert redact(redact("one TWO [redacted]")) == f"{BLANK} TWO {BLANK}"


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("pattern", "why"),
    [("(", "cannot be compiled"), ("a*", "matches the empty text"), ("", "empty text"), ("$", "empty")],
)
def test_a_pattern_that_cannot_be_used_is_refused_by_name(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pattern)) + ".*" + why):
        redact_also(pattern)
    assert redaction._own == []
