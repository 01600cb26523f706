"""A server's answer is read up to a length only, however it is sent and however small it was packed."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Callable

import pytest

from orchestrator import OpenAIModel
from orchestrator.errors import ModelError, ReplyTooLarge
from tests.support.sizes import sized
from tests.support.wire import Raw, chunk, said, served, sse

pytestmark = pytest.mark.anyio
KEY = "sk-not-a-key"
LIMIT = 1_000_000
_PACKED = {"Content-Encoding": "gzip"}
_EVENTS = {"Content-Type": "text/event-stream"}


def packed(size: int) -> bytes:
    """An answer of so many bytes, in about a thousandth of them."""
    answer = json.dumps(said("x" * size)).encode()
    return gzip.compress(answer)


LARGE: dict[str, Callable[[], Raw]] = {
    "plain": lambda: Raw(json.dumps(said("x" * LIMIT)).encode()),
    "packed": lambda: Raw(packed(LIMIT * 20), headers=_PACKED),
    "an error": lambda: Raw(b"x" * LIMIT * 2, status=500),
    "an error, packed": lambda: Raw(gzip.compress(b"x" * LIMIT * 20), status=400, headers=_PACKED),
    "a stream": lambda: Raw(parts=[*[sse(chunk({"content": "x" * 100_000}), done=False)] * 11], headers=_EVENTS),
    "one endless line": lambda: Raw(parts=[*[b"data: " + b"x" * 200_000] * 6], headers=_EVENTS),
    "comments": lambda: Raw(parts=[*[b":" + b"x" * 100_000 + b"\n\n"] * 11], headers=_EVENTS),
    "a stream, packed": lambda: Raw(
        gzip.compress(sse(chunk({"content": "x" * LIMIT * 20}))), headers={**_EVENTS, **_PACKED}
    ),
}


BOTH_WAYS = list(itertools.product(LARGE, [False, True]))
"""Each answer, to a request for all of it and to one for a stream."""
IN_TURN = [*zip(LARGE, itertools.cycle([False, True]), strict=False)]


@pytest.mark.full
@pytest.mark.parametrize(("name", "streamed"), sized(IN_TURN, BOTH_WAYS))
async def test_an_answer_that_is_too_large_is_an_error_of_its_own(name: str, streamed: bool) -> None:
    with served(said("first"), LARGE[name](), said("next")) as wire:
        async with OpenAIModel("m", wire.url, KEY, max_reply_bytes=LIMIT) as model:
            # What the first request imports is no part of what is measured, and under `tracemalloc` it takes seconds.
            assert (await model.complete("Hi")).text == "first"
            tracemalloc.start()
            try:
                with pytest.raises(ReplyTooLarge, match=r"more than 1,000,000 bytes.*larger max_reply_bytes="):
                    await (ask_in_pieces(model) if streamed else model.complete("Hi"))
                most = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert (await model.complete("Hi")).text == "next"
    assert most < 90_000_000  # one piece of what comes may unpack to a thousand times as much


async def ask_in_pieces(model: OpenAIModel) -> str:
    text = ""
    async for event in model.stream("Hi"):
        text += event.text
    return text


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_within_the_bound_is_read(streamed: bool) -> None:
    with served(Raw(packed(LIMIT - 1_000), headers=_PACKED)) as wire:
        async with OpenAIModel("m", wire.url, KEY, max_reply_bytes=LIMIT) as model:
            text = await ask_in_pieces(model) if streamed else (await model.complete("Hi")).text
    assert text == "x" * (LIMIT - 1_000)


def test_it_is_an_error_of_a_model_after_which_a_run_can_be_resumed() -> None:
    assert issubclass(ReplyTooLarge, ModelError)
    assert (ReplyTooLarge.retryable, ReplyTooLarge.resumable) == (False, True)
