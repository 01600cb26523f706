"""Log probabilities of replies: read in every form that servers send, kept small, and the probability of a choice."""

from __future__ import annotations

import json
from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import OpenAIModel
from orchestrator.models import Profile, Reply
from orchestrator.models.chat import reply_from
from orchestrator.models.logprobs import MOST_TOKENS, TokenLogprob, probability, token_logprobs
from orchestrator.models.messages import received
from orchestrator.models.profile import profile_of
from tests.support.sizes import sized
from tests.support.wire import Raw, chunk, said, served, sse

pytestmark = pytest.mark.anyio

NAMES = ("billing", "bugs", "other")
JSON_ = '{"choice": "billing"}'


def entry(token: str, share: float, raw: bool = False, **others: float) -> dict[str, Any]:
    """A token as OpenAI, vLLM and llama.cpp send it."""

    def one(text: str, share: float) -> dict[str, Any]:
        return {"token": text, "logprob": log(share), "bytes": [*text.encode()] if raw else None}

    return {**one(token, share), "top_logprobs": [one(token, share), *(one(*pair) for pair in others.items())]}


def tokens(*parts: tuple[str, float, dict[str, float]] | str) -> tuple[TokenLogprob, ...]:
    """Tokens with probabilities; a text is a token that is certain."""
    found = [(part, 1.0, {}) if isinstance(part, str) else part for part in parts]
    return tuple(
        TokenLogprob(text, log(share), {other: log(likely) for other, likely in others.items()})
        for text, share, others in found
    )


WRITTEN = {
    "content": [entry('{"choice": "', 0.9), entry("bill", 0.6, bug=0.3, oth=0.1), entry("ing", 0.99), entry('"}', 1)]
}
EXPECTED = ("billing", pytest.approx(0.6, abs=1e-3))
LEGACY = {
    "tokens": ['{"choice": "', "bill", 'ing"}'],
    "token_logprobs": [log(0.9), log(0.6), log(0.99)],
    "top_logprobs": [None, {"bill": log(0.6), "bug": log(0.3), "oth": log(0.1)}, {"ing": log(0.99)}],
}


@pytest.mark.parametrize("written", [WRITTEN, LEGACY], ids=["chat", "text"])
async def test_whole_and_streamed_replies_have_them_only_if_asked_for(written: dict[str, Any]) -> None:
    whole = said(JSON_)
    whole["choices"][0]["logprobs"] = written
    pieces = []
    for at in range(3 if written is LEGACY else 4):
        piece = chunk({"content": ""})
        parts = {key: [value[at]] for key, value in written.items()}
        piece["choices"][0]["logprobs"] = {**parts, "refusal": None}
        pieces.append(piece)
    streamed = Raw(
        parts=[sse(chunk({"content": JSON_}), *pieces, chunk(finish="stop"))],
        headers={"content-type": "text/event-stream"},
    )
    with served(whole, streamed, said("x")) as wire:
        async with OpenAIModel("m", wire.url, "none") as model:
            reply = await model.complete("Hi", logprobs=True)
            (*_, last) = [event.reply async for event in model.stream("Hi", logprobs=True)]
            assert (await model.complete("Hi")).logprobs == ()
    assert last is not None
    assert reply.logprobs == last.logprobs
    assert probability(reply.logprobs, reply.text, "billing", NAMES) == EXPECTED[1]
    first, second, third = (one.body for one in wire.seen)
    assert (first["logprobs"], first["top_logprobs"]) == (second["logprobs"], second["top_logprobs"]) == (True, 20)
    assert "logprobs" not in third
    assert "top_logprobs" not in third
    assert Reply.model_validate(json.loads(json.dumps(reply.data()))) == reply == received(reply)


async def test_a_server_that_does_not_accept_the_option_is_not_sent_it() -> None:
    with served(said("x"), said("x")) as wire:
        async with OpenAIModel("m", wire.url, "none", profile=Profile(logprobs=0)) as model:
            assert (await model.complete("Hi", logprobs=True, top_logprobs=3)).logprobs == ()
        async with OpenAIModel("m", wire.url, "none", profile=Profile(logprobs=5)) as model:
            await model.complete("Hi", logprobs=True)
    assert "logprobs" not in wire.seen[0].body
    assert "top_logprobs" not in wire.seen[0].body
    assert wire.seen[1].body["top_logprobs"] == 5
    assert profile_of("gpt-5", None).logprobs == 0
    assert profile_of("gpt-4o", None).logprobs == profile_of("any", "http://127.0.0.1:1/v1").logprobs == 20


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        "x",
        {},
        {"content": None},
        {"content": [1]},
        {"content": [{"token": "a"}]},
        {"tokens": ["a"]},
        {"content": [{"token": 1, "logprob": 0}]},
        {"content": [{"token": "a", "logprob": None}]},
        {"content": [{"token": "a", "logprob": True}]},
        {"content": [entry("a", 1), None]},
        {"tokens": ["a"], "token_logprobs": []},
        {"tokens": ["a"], "token_logprobs": [None]},
        {"content": [{"token": "a", "logprob": float("nan")}]},
        {"content": [{"token": "a", "logprob": 10**400}]},
        {"content": [{"token": "a", "logprob": 5.0}]},
        {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": 10**400}]}]},
        {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": 5}]}]},
    ],
)
def test_what_cannot_be_read_is_left_out(written: object) -> None:
    assert token_logprobs(written) == ()
    answer = said("x")
    answer["choices"][0]["logprobs"] = written
    assert reply_from(answer, "m").logprobs == ()


def test_odd_values_are_read() -> None:
    odd = {"token": "\ud83d", "logprob": 1e-7, "top_logprobs": [{"token": "a", "logprob": -3.4e38}, 1, None]}
    (token,) = token_logprobs({"content": [odd]})
    assert token == TokenLogprob("\ufffd", 0.0, {})
    (token,) = token_logprobs({"content": [{"token": "Ġyes", "bytes": [32, 121, 101, 115], "logprob": -9999}]})
    assert token == TokenLogprob(" yes", -9999.0, {})
    (token,) = token_logprobs({"content": [{"token": "a", "bytes": [300], "logprob": -1, "top_logprobs": None}]})
    assert token.token == "a"


def test_they_are_kept_small() -> None:
    many = {f"alternative {n}": 0.004 for n in range(200)}
    count = sized(2 * MOST_TOKENS, 10_000)
    kept = token_logprobs({"content": [entry(f"token {n}", 0.2, raw=True, **many) for n in range(count)]})
    assert len(kept) == MOST_TOKENS
    assert kept[-1].token == f"token {count - 1}"
    assert len(json.dumps(Reply(details={"logprobs": [[*token] for token in kept]}).data())) < 16_000


async def test_a_model_of_the_user_that_gives_odd_ones_loses_them_alone() -> None:
    for odd in ([["yes", float("nan"), {}]], "x", [["yes"]], [["yes", -1, {"no": None}]], {"yes": 1}):
        kept = received(Reply(text="yes", details={"logprobs": odd}))
        assert (kept.text, kept.logprobs) == ("yes", ())


async def test_tokens_of_a_secret_that_is_redacted_are_not_kept() -> None:
    key = "sk-very-secret-1234567890"
    parts = [entry(part, 0.9) for part in ("The key", " sk", "-very-secret", "-1234567890")]
    whole = said(f"The key {key}")
    whole["choices"][0]["logprobs"] = {"content": parts}
    with served(whole, said(JSON_)) as wire:
        async with OpenAIModel("m", wire.url, key) as model:
            reply = received(await model.complete("Hi", logprobs=True))
    assert reply.text == f"The key {key}"  # it is redacted where it is journaled
    assert reply.logprobs == ()
    assert "very" not in json.dumps(reply.data()["details"])


@pytest.mark.parametrize(
    ("answer", "parts", "expected"),
    [
        (JSON_, tokens('{"choice": "', ("billing", 0.7, {"bugs": 0.2, "other": 0.1}), '"}'), 0.7),
        # what is no choice counts against it, also if a schema excludes it: the model would rather have written that
        (JSON_, tokens('{"', "choice", '": "', ("billing", 0.07, {"I": 0.9, "bugs": 0.03}), '"}'), 0.07),
        ("billing", tokens(("billing", 0.1, {"I": 0.9})), 0.1),
        # several tokens, of which the first may begin two choices
        (JSON_, tokens('{"choice": "', ("b", 0.8, {"other": 0.2}), ("illing", 0.5, {"ugs": 0.5}), '"}'), 0.4),
        # other tokens that begin the same choice count for it
        (JSON_, tokens('{"choice":', (' "bill', 0.4, {' "billing': 0.2, ' "B': 0.1, ' "bug': 0.3}), 'ing"}'), 0.6),
        ("billing", tokens(("billing", 0.4, {" billing": 0.1, "\nBilling": 0.1, '"bugs': 0.4})), 0.6),
        # a word in the JSON around it, a fence, and the end
        ('{"choice": "choice"}', tokens('```\n{"choice', '": "', ("choice", 0.75, {"x": 0.25}), '"}\n```', ""), 0.75),
        ("billing", tokens(("billing", 0.9, {"bugs": 0.05, "other": 0.05})), 0.9),
        ("**Billing**", tokens("**", ("Bill", 0.5, {"bug": 0.25, "OTHER": 0.25}), "ing", "**"), 0.5),
        # not all alternatives are listed
        ("billing", tokens(("billing", 0.9, {})), 0.9),
        ("billing", tokens(("billing", 0.9, {"bugs": 0.06})), 0.9),
        # a choice that a grammar forced, and that is not even listed
        (JSON_, tokens('{"choice": "', ("billing", 1e-6, {"I": 0.6, "The": 0.3}), '"}'), 0.0),
        (JSON_, tokens('{"choice": "', ("billing", 0.0001, {"I": 0.9, "The": 0.0001}), '"}'), 0.0001),
        (JSON_, (*tokens('{"choice": "'), TokenLogprob("billing", -9999, {}), *tokens('"}')), 0.0),
        # a choice is where the key is, and a whole word
        (
            '{"choice": "billing", "why": "billing"}',
            tokens('{"choice": "', ("billing", 0.5, {"bugs": 0.5}), '", "why": "', "billing", '"}'),
            0.5,
        ),
        ("Rebilling: billing", tokens("Rebilling", ": ", ("billing", 0.5, {"bugs": 0.5})), 0.5),
        ('{"why": "billing"}', tokens('{"why": "', "billing", '"}'), None),
        ('{"choice": "bugs", "why": "billing"}', tokens('{"choice": "bugs", "why": "billing"}'), None),
        (
            '{"is": {"choice": "billing"}, "choice": "billing"}',
            tokens('{"is": {"choice": "billing"}, "choice": "billing"}'),
            None,
        ),
        # no probabilities
        ("billing", (TokenLogprob("billing", 5.0, {"bugs": -1}),), None),
        ("billing", (TokenLogprob("billing", -1, {"bugs": 5000.0}),), None),
        # not known
        (JSON_, (), None),
        (JSON_, tokens("something else"), None),
        ("", tokens("billing"), None),
        ("money", tokens("money"), None),
    ],
)
def test_the_probability_of_a_choice(answer: str, parts: tuple[TokenLogprob, ...], expected: float | None) -> None:
    chosen = "choice" if '"choice"}' in answer else "billing"
    names = ("choice", "x") if chosen == "choice" else NAMES
    found = probability(parts, answer, chosen, names)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-3))


def test_a_choice_that_begins_another() -> None:
    names = ("1", "10", "2")
    one = tokens('{"choice": "', ("1", 0.8, {"2": 0.2}), ('"', 0.25, {"0": 0.75}), "}")
    ten = tokens('{"choice": "', ("1", 0.8, {"2": 0.2}), ("0", 0.75, {'"': 0.25}), '"}')
    assert probability(one, '{"choice": "1"}', "1", names) == pytest.approx(0.2, abs=1e-3)
    assert probability(ten, '{"choice": "10"}', "10", names) == pytest.approx(0.6, abs=1e-3)
    assert probability(tokens(("1", 0.8, {"10": 0.1, "2": 0.1})), "1", "1", names) is None  # was that the end?
    assert probability(tokens(("1", 0.8, {"10": 0.1, "2": 0.1}), ""), "1", "1", names) == pytest.approx(0.8, abs=1e-3)
    blanks = ("not", "not sure")
    assert probability(tokens("not", (" sure", 0.6, {"": 0.4})), "not sure", "not sure", blanks) == pytest.approx(0.6)
    assert probability(tokens("not", ("", 0.4, {" sure": 0.6})), "not", "not", blanks) == pytest.approx(0.4)


@given(st.data())
def test_it_is_between_0_and_1_for_any_tokens(data: st.DataObject) -> None:
    text = st.text('bilngusother"{}: ', max_size=4)
    share = st.floats(-20, 0)
    drawn = data.draw(st.lists(st.tuples(text, share, st.dictionaries(text, share, max_size=4)), max_size=6))
    made = (
        *(TokenLogprob(*one) for one in drawn),
        TokenLogprob("bill", data.draw(share), {}),
        TokenLogprob("ing", 0, {}),
    )
    found = probability(made, "".join(one.token for one in made), "billing", NAMES)
    assert found is None or 0 <= found <= 1


def test_tokens_that_begin_several_other_choices_count_against_it() -> None:
    two = tokens('{"choice": "', ("2", 0.2, {"1": 0.8}), '"}')
    assert probability(two, '{"choice": "2"}', "2", ("1", "10", "2")) == pytest.approx(0.2)


def test_the_shares_of_all_choices_never_exceed_1() -> None:
    shares = {"billing": 0.5, "bugs": 0.3, "other": 0.2}
    found = [
        probability(tokens((name, shares[name], {n: s for n, s in shares.items() if n != name})), name, name, NAMES)
        for name in NAMES
    ]
    assert [one is not None for one in found] == [True] * 3
    assert sum(one or 0 for one in found) == pytest.approx(1, abs=1e-3)
