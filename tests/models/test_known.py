"""Context windows and prices by the names of models, from an installed data set that never updates itself."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from orchestrator import OpenAIModel
from orchestrator.models import Fallback, Price, Profile, with_middleware
from orchestrator.models.known import known
from tests.support.wire import said, served

pytestmark = pytest.mark.anyio
LOCAL = "http://127.0.0.1:8080/v1"


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_a_known_name_has_a_window_and_prices() -> None:
    model = OpenAIModel("gpt-4o-mini")
    assert model.window == 128_000
    assert model.price is not None
    assert (model.price.input, model.price.output, model.price.cached_input) == (0.15, 0.6, 0.075)
    claude = known("claude-sonnet-4-5", "https://api.anthropic.com/v1").price
    assert claude is not None
    assert (claude.input, claude.cache_write) == (3.0, 3.75), "of tiers, the first"


@pytest.mark.parametrize(
    ("name", "address"), [("no-such-model", None), ("gpt-4o-mini", LOCAL), ("llama3", LOCAL), ("", None), ("m", None)]
)
def test_an_unknown_name_or_server_has_neither(name: str, address: str | None) -> None:
    model = OpenAIModel(name, address, "k")
    assert (model.window, model.price) == (None, None)


def test_what_is_given_takes_precedence() -> None:
    model = OpenAIModel("gpt-4o-mini", profile=Profile(window=9_000), price=Price(input=7.0))
    assert (model.window, model.price) == (9_000, Price(input=7.0))
    other = OpenAIModel("gpt-4o-mini", price={"another": Price()})
    assert other.price == OpenAIModel("gpt-4o-mini").price


def test_a_model_around_others_has_the_smallest_known_window() -> None:
    small, unknown = OpenAIModel("a", LOCAL, profile=Profile(window=4_000)), OpenAIModel("b", LOCAL)
    large = OpenAIModel("c", LOCAL, profile=Profile(window=8_000))
    model: Any = with_middleware(large, Fallback(small, unknown))
    assert model.window == 4_000
    assert with_middleware(unknown, Fallback(unknown)).window is None  # type: ignore[attr-defined]


def test_the_data_set_is_loaded_when_it_is_needed_and_without_the_network() -> None:
    code = """
import socket, sys
def refuse(*_: object) -> None:
    raise AssertionError("a connection")
socket.socket.connect = refuse
from orchestrator import OpenAIModel
model = OpenAIModel("gpt-4o-mini")
assert "genai_prices" not in sys.modules
assert model.window == 128_000
assert not any(thread.name.startswith("genai") for thread in __import__("threading").enumerate())
print("well")
"""
    env = {name: value for name, value in os.environ.items() if name != "OPENAI_BASE_URL"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert (told.stdout.strip(), told.stderr) == ("well", "")


def test_without_the_package_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    known.cache_clear()
    try:
        assert (OpenAIModel("gpt-4o-mini").window, OpenAIModel("gpt-4o-mini").price) == (None, None)
    finally:
        known.cache_clear()


@pytest.mark.parametrize(
    ("told", "cached", "written"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}}, 60, 30),
        ({"prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}, 60, 0),
        ({"cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}, 60, 30),
        ({"prompt_tokens_details": None}, 0, 0),
        ({"prompt_tokens_details": {"cached_tokens": "many"}}, 0, 0),
    ],
)
async def test_the_usage_tells_what_the_cache_of_the_provider_did(
    told: dict[str, Any], cached: int, written: int
) -> None:
    price = Price(input=10.0, cached_input=1.0, cache_write=20.0)
    with served(said("x", usage={"prompt_tokens": 100, "completion_tokens": 1, **told})) as wire:
        async with OpenAIModel("m", wire.url, price=price) as model:
            usage = (await model.complete("Hi")).usage
    assert usage is not None
    assert (usage.cached_tokens, usage.written_tokens) == (cached, written)
    assert usage.cost == pytest.approx(((100 - cached - written) * 10 + cached + written * 20) / 1_000_000)
    assert usage.cache_savings == pytest.approx((cached * 9 - written * 10) / 1_000_000)


@pytest.mark.parametrize("price", [None, Price(input=10.0, output=1.0)])
async def test_without_a_price_of_cached_tokens_nothing_is_said_to_be_saved(price: Price | None) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "cache_read_input_tokens": 60}
    with served(said("x", usage=usage)) as wire:
        async with OpenAIModel("m", wire.url, price=price) as model:
            found = (await model.complete("Hi")).usage
    assert found is not None
    assert "cache_savings" not in found.model_dump()
