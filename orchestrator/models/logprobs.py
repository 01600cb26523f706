"""Log probabilities of a reply's tokens, and the probability of the choice that the reply names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import exp, inf
from typing import NamedTuple

from orchestrator.json import storable

MOST_TOKENS = 48
"""Maximum number of tokens of a reply, the last ones, whose log probabilities are kept."""
_AT_START, _AT_END = 8, 12
"""Numbers of tokens at the start and at the end of these whose alternatives are kept: a choice stands at either end."""
_MOST_OTHERS = 20
_LEAST = -9.2
"""Log probability, about 1 in 10,000, below which the other tokens are left out."""
_MOST = 0.01
"""Highest log probability that is read, above 0 for errors of rounding."""
_AROUND = " \t\r\n\"'`*_“”‘’"
"""Characters that may precede a choice in a token."""
_BLANKS = str.maketrans("▁Ġ", "  ")
"""Characters that tokenizers write for a blank."""
_key = re.compile(r"""["']choice["']\s*:\s*["']?""")


class TokenLogprob(NamedTuple):
    """A token of a reply."""

    token: str
    """The text of the token."""
    logprob: float
    """The natural logarithm of its probability."""
    others: dict[str, float]
    """Other tokens that were likely in its place, each with its log probability."""


def token_logprobs(written: object) -> tuple[TokenLogprob, ...]:
    """Return the last tokens of an answer's `logprobs`, in the form of chat completions or that of text completions.

    Returns:
        The tokens; none if the field is missing or cannot be read.
    """
    found = written if isinstance(written, Mapping) else {}
    entries = found.get("content")
    if not isinstance(entries, list):
        tokens, logprobs, tops = (found.get(key) for key in ("tokens", "token_logprobs", "top_logprobs"))
        if not isinstance(tokens, list) or not isinstance(logprobs, list) or len(tokens) != len(logprobs):
            return ()
        tops = tops if isinstance(tops, list) and len(tops) == len(tokens) else [None] * len(tokens)
        entries = [
            {"token": token, "logprob": logprob, "top_logprobs": top}
            for token, logprob, top in zip(tokens, logprobs, tops, strict=True)
        ]
    read = [_token(entry) for entry in entries[-MOST_TOKENS:]]
    known = [token for token in read if token is not None]
    if len(known) < len(read):
        return ()
    middle = range(_AT_START, len(known) - _AT_END)
    return tuple(TokenLogprob(*one[:2], {}) if at in middle else one for at, one in enumerate(known))


def _token(entry: object) -> TokenLogprob | None:
    known = _pair(entry)
    if known is None or not isinstance(entry, Mapping):
        return None
    tops = entry.get("top_logprobs")
    if isinstance(tops, Mapping):
        tops = [{"token": token, "logprob": logprob} for token, logprob in tops.items()]
    listed = [top for top in (tops if isinstance(tops, list) else ()) if isinstance(top, Mapping)]
    if any(isinstance(top.get("logprob"), int | float) and top["logprob"] > _MOST for top in listed):
        return None  # a probability above 1 is invalid, so the other values are not trusted either
    pairs = [pair for top in listed if (pair := _pair(top)) is not None]
    likely = sorted((pair for pair in pairs if pair[1] >= _LEAST), key=lambda pair: -pair[1])
    others = {token: logprob for token, logprob in reversed(likely[:_MOST_OTHERS]) if token != known[0]}
    return TokenLogprob(*known, dict(reversed(others.items())))


def _pair(entry: object) -> tuple[str, float] | None:
    """Return the text of a token and its log probability."""
    if not isinstance(entry, Mapping):
        return None
    token, logprob, raw = entry.get("token"), entry.get("logprob"), entry.get("bytes")
    if not isinstance(token, str) or isinstance(logprob, bool) or not isinstance(logprob, int | float):
        return None
    if not -inf < logprob <= _MOST:
        return None
    if isinstance(raw, list) and raw and all(type(one) is int and 0 <= one < 256 for one in raw):
        token = bytes(raw).decode(errors="replace")
    else:
        token = token.translate(_BLANKS)
    return storable(token), round(min(0.0, max(-9999.0, logprob)), 3)


# -- The probability of a choice -------------------------------------------------------------------------------
# A choice may be several tokens, and a reply contains more than the choice: JSON around it, a fence. Tokens from the
# first one of the choice are compared with the others that were likely in their place: those that begin the same choice
# count for it, all others against it, also those that begin no choice, such as the first word of a refusal. From where
# only one choice is left, nothing counts. The result is rather too small than too large.


def probability(tokens: Sequence[TokenLogprob], answer: str, chosen: str, choices: Collection[str]) -> float | None:
    """Return the probability that the model writes the choice that a reply names, and not something else.

    Args:
        tokens: the tokens of the reply.
        answer: the reply's text: a JSON object with the choice in the key `choice`, or a text that contains it.
        chosen: the choice.
        choices: all choices.

    Returns:
        A number from 0 to 1; None if it is not known.
    """
    text = "".join(token.token for token in tokens)
    start = text.rfind(answer)
    if start < 0 or not answer or not chosen:
        return None
    at = _place(answer, chosen)
    if at is None:
        return None
    at += start
    passed, first = 0, 0
    while passed + len(tokens[first].token) <= at:
        passed, first = passed + len(tokens[first].token), first + 1
    found = _among(tokens[first:], text[passed:at], chosen, {name: name.lower() for name in choices})
    return None if found is None else round(min(1.0, found), 4)


def _place(answer: str, chosen: str) -> int | None:
    """Return where a reply names its choice: in an object the value of its only key `choice`, else the first place."""
    named = re.compile(rf"(?<!\w){re.escape(chosen)}(?!\w)", re.IGNORECASE)
    if not answer.startswith("{"):
        found = named.search(answer)
        return None if found is None else found.start()
    keys = [key.end() for key in _key.finditer(answer)]
    return keys[0] if len(keys) == 1 and named.match(answer, keys[0]) else None


def _among(tokens: Sequence[TokenLogprob], lead: str | None, chosen: str, left: Mapping[str, str]) -> float | None:
    """Return the probability of a choice among all that the model may write from here.

    Args:
        tokens: the rest of the reply.
        lead: characters of the first token before the choice; None after the first token.
        chosen: the choice.
        left: choice -> the part of its name that is not written yet.
    """
    if len(left) == 1:
        return 1.0
    if not tokens:
        return None
    token = tokens[0]
    after = _after(token.token[len(lead or "") :], left)
    further = _among(tokens[1:], None, chosen, after) if chosen in after else None
    likely = {other: exp(min(1.0, logprob)) for other, logprob in token.others.items()}
    taken = exp(min(1.0, token.logprob))
    if further is None or taken + sum(likely.values()) > 1.05:  # no probabilities, beyond errors of rounding
        return None
    for other, share in likely.items():
        body = other if lead is None else other.removeprefix(lead).lstrip(_AROUND)
        if _after(body, left).keys() == {chosen}:
            further += share / taken if taken else 0.0
    return taken * further


def _after(body: str, left: Mapping[str, str]) -> dict[str, str]:
    """Return the choices that a reply may still name after another token, with the parts of their names to come."""
    body = body.lower()
    longer = {name: rest[len(body) :] for name, rest in left.items() if body and rest.startswith(body)}
    if longer:
        return longer
    return {name: "" for name, rest in left.items() if body.startswith(rest) and _ends(body[len(rest) :])}


def _ends(rest: str) -> bool:
    """Return True if text after a name ends the name. An empty token is the end of the reply."""
    return not rest[:1].isalnum() and rest[:1] not in ("_", "-")
