"""A key is looked for when it is needed, and seen by nobody but the server."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from orchestrator import Executor, Graph, OpenAIModel, node
from orchestrator.context import Context
from orchestrator.errors import GraphUnknown, ModelError, ModelMisconfigured
from orchestrator.kernel.records import encode
from orchestrator.models import OfflineModel, model_from_ref
from tests.support.wire import Raw, refused, said, served

pytestmark = pytest.mark.anyio

KEY = "sk-not-a-real-key-42"


async def test_without_a_key_only_the_first_call_fails() -> None:
    model = OpenAIModel("m")
    with pytest.raises(ModelError, match="model 'm' has no key: set the environment variable OPENAI_API_KEY"):
        await model.complete("Hi")


@pytest.mark.full
def test_making_a_model_loads_no_providers_package() -> None:
    script = "\n".join([
        "import sys",
        "from orchestrator import OpenAIModel",
        "from orchestrator.models import model_from_ref",
        "OpenAIModel('m', api_key='env:NOBODY'), model_from_ref('openai:m')",
        "print([name for name in ('openai', 'httpx', 'httpx2') if name in sys.modules])",
    ])  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_key_from_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(said("x"), said("y")) as wire:
        async with OpenAIModel("m", wire.url, "env:MY_KEY") as model:
            with pytest.raises(ModelError, match="set the environment variable MY_KEY"):
                await model.complete("Hi")
            for key in ("first-key", "second-key"):
                monkeypatch.setenv("MY_KEY", key)
                await model.complete("Hi")
    assert [seen.headers["authorization"] for seen in wire.seen] == ["Bearer first-key", "Bearer second-key"]


async def test_a_key_that_changes_keeps_the_connection_and_headers_of_ones_own_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(said("x"), said("y")) as wire:
        async with OpenAIModel("m", wire.url, headers={"authorization": "Token mine", "X-Team": "blue"}) as model:
            for key in ("first-key", "second-key"):
                monkeypatch.setenv("OPENAI_API_KEY", key)
                await model.complete("Hi")
    assert [seen.headers["authorization"] for seen in wire.seen] == ["Token mine"] * 2
    assert [seen.headers["x-team"] for seen in wire.seen] == ["blue"] * 2
    assert len({seen.port for seen in wire.seen}) == 1


async def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(said("x")) as wire:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", wire.url)
        async with OpenAIModel("m") as model:
            assert (await model.complete("Hi")).text == "x"
    assert wire.seen[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_server_of_ones_own_needs_no_key() -> None:
    with served(said("x")) as wire:
        async with OpenAIModel("m", wire.url) as model:
            assert (await model.complete("Hi")).text == "x"


@pytest.mark.parametrize("key", [KEY, SecretStr(KEY)])
def test_it_is_in_no_text_of_the_model_and_in_no_copy(key: str | SecretStr) -> None:
    model = OpenAIModel("m", "http://127.0.0.1:1/v1", key, headers={"X-Key": KEY})
    for text in (repr(model), str(model), f"{model}", repr(vars(model)["_key"])):
        assert KEY not in text
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="as it may hold a key"):
            make(model)  # type: ignore[operator]


@pytest.mark.parametrize(
    "answer",
    [
        refused(401, f"Incorrect API key provided: {KEY}"),
        refused(429, f"{KEY} is over its limit"),
        refused(500, f"header-secret-7 {KEY}"),
        {"error": {"message": f"no: {KEY}", "code": 403}},
        Raw(f"<html>{KEY} header-secret-7</html>".encode()),
        Raw(f"not json {KEY}".encode()),
        {"said": KEY},
        Raw(silent=True),
        Raw(hangs=True),
    ],
)
async def test_it_is_in_no_error_whatever_the_server_says(answer: Raw | dict[str, object]) -> None:
    with served(answer) as wire:
        headers = {"X-Other": "header-secret-7"}
        async with OpenAIModel("m", wire.url, KEY, headers=headers, timeout=0.5) as model:
            with pytest.raises(ModelError) as caught:
                await model.complete("Hi")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert "header-secret-7" not in shown
    # The client's own errors hold requests with all their headers: none hangs on ours.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


class Talk(BaseModel):
    said: str = ""


@node
async def talk(state: Talk, ctx: Context[None]) -> dict[str, object]:
    return {"said": (await ctx.model.complete("Hi", temperature=0)).text}


async def test_it_is_in_no_file_of_a_store(tmp_path: Path) -> None:
    graph = Graph(name="talk", state=Talk, nodes={"talk": talk}, edges="START -> talk -> END", output="said")
    answers = [said("hello"), refused(401, f"wrong key {KEY}")]
    with served(*answers) as wire:
        model, store = OpenAIModel("m", wire.url, KEY), f"sqlite:///{tmp_path}/runs.db"
        async with model, Executor(store, model=model) as executor:
            good = await executor.start(graph, {})
            with pytest.raises(ModelMisconfigured):
                await executor.start(graph, {}, run_id="bad")
            bad = await executor.load("bad")
            exported = [
                encode(record).decode() for run in (good, bad) for record in await executor.store.read(run.run_id)
            ]
    assert (good.status, bad.status) == ("completed", "interrupted")
    assert KEY not in "".join(exported)
    files = list(tmp_path.iterdir())
    assert files
    assert all(KEY.encode() not in file.read_bytes() for file in files)


# -- references ----------------------------------------------------------------------------------------------------

ours = OfflineModel()


def make() -> OfflineModel:
    return ours


def test_models_are_named_by_text() -> None:
    assert isinstance(model_from_ref("offline"), OfflineModel)
    named = model_from_ref("openai:gpt-test")
    assert isinstance(named, OpenAIModel)
    assert named.name == "gpt-test"
    assert model_from_ref(f"{__name__}:ours") is ours
    assert model_from_ref(f"{__name__}:make") is ours


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("gpt-4o", "is unknown: did you mean 'openai:gpt-4o'"),
        ("openai:", "does not name a model"),
        ("openai:sk-0123456789abcdef0123", r"'openai:\[redacted\]': it holds a secret.*OPENAI_API_KEY"),
        ("openai:https://ann:hunter22@x.example", "it holds a secret"),
        ("offline:x", "offline"),
        (f"{__name__}:KEY", "is not a model but a str"),
        (f"{__name__}:nobody", "nobody"),
        ("no_such_module:x", "no_such_module"),
    ],
)
def test_what_names_no_model(ref: str, words: str) -> None:
    with pytest.raises(GraphUnknown, match=words):
        model_from_ref(ref)
