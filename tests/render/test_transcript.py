"""Transcripts: each message, reply, call and question of a run once, in the order in which it was said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Deny, Executor, Graph
from orchestrator.executor import Entry, Run
from orchestrator.kernel import records as r
from orchestrator.models import OfflineModel
from orchestrator.strategies import (
    chat,
    code_act,
    evaluator_optimizer,
    function_call,
    function_call_agent,
    llm_compiler,
    orchestrator_workers,
    plan_and_execute,
    plan_and_solve,
    plan_and_solve_prompt,
    react,
    reflexion,
    rewoo,
    router,
    self_ask,
    self_consistency,
    supervisor,
    swarm,
    tool_user,
    tree_of_thoughts,
)
from orchestrator.testing import ScriptedModel
from orchestrator.tools import tools_from_ref
from tests.render.html.talks import run_shortened, run_weather, search_web, send_mail
from tests.web.mail import LETTER, Post

pytestmark = pytest.mark.anyio
QUESTION = "What is 20+(2*4)?"
ADDING = tools_from_ref("arithmetic")
MODULES = (
    chat, evaluator_optimizer, function_call, function_call_agent, orchestrator_workers, plan_and_execute,
    plan_and_solve, plan_and_solve_prompt, react, reflexion, rewoo, router, self_consistency, tool_user,
    code_act, llm_compiler, self_ask, supervisor, swarm, tree_of_thoughts,
)  # fmt: skip
STRATEGIES = {one.__name__.rpartition(".")[2]: one.graph for one in MODULES}


async def ran(graph: Graph, **options: Any) -> Run:
    async with Executor(graphs=[graph], model=OfflineModel(), tools=ADDING) as executor:
        return await executor.start(graph, QUESTION, approve="dangerous", **options)


def texts(entries: list[Entry]) -> set[str]:
    """All that entries say."""
    found = set[str]()
    for one in (entry.to_json() for entry in entries):
        found |= {str(one.get("text", "")).strip(), str(one.get("result", ""))}
    return found


@pytest.mark.parametrize("name", STRATEGIES)
async def test_every_strategy_reads_as_a_conversation(name: str) -> None:
    run = await ran(STRATEGIES[name])
    entries, records = run.transcript(), run.records()
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.seq for entry in entries] == sorted(entry.seq for entry in entries)
    called = Counter((one.kind, one.seq) for one in records if isinstance(one, r.EffectIntended))
    shown = Counter(("model" if one.kind == "turn" else "tool", one.seq) for one in entries if one.call is not None)
    assert shown == Counter({key: count for key, count in called.items() if key[0] != "effect"})
    asked = [one.seq for one in records if isinstance(one, r.Asked)]
    assert [entry.seq for entry in entries if entry.question is not None] == asked
    # Whatever a model was told is in the transcript: as a message, or as the reply or result that it repeats.
    told = {
        message["content"].strip()
        for record in records
        if isinstance(record, r.EffectIntended) and record.kind == "model"
        for message in record.request["messages"]  # type: ignore[union-attr, attr-defined]
        if message.get("content")
    }
    assert told <= texts(entries)
    said = [entry.digest for entry in entries if entry.kind == "message"]
    assert len(set(said)) == len(said)
    assert any(entry.to_json().get("usage") for entry in entries)


async def test_a_message_that_is_said_twice_is_shown_twice() -> None:
    graph = chat.chat()
    async with Executor(graphs=[graph], model=ScriptedModel(["one", "two", "three"]), tools=ADDING) as executor:
        run = await executor.start(graph, "go on")
        for _ in range(2):
            run = await executor.answer(run.run_id, run.waiting[0].id, "go on")
    kinds = [(entry.kind, entry.to_json().get("text") or entry.to_json().get("prompt")) for entry in run.transcript()]
    assert kinds[1:] == [
        ("message", "go on"), ("turn", "one"), ("question", "one"),
        ("message", "go on"), ("turn", "two"), ("question", "two"),
        ("message", "go on"), ("turn", "three"), ("question", "three"),
    ]  # fmt: skip
    assert [entry.open for entry in run.transcript()][-2:] == [False, True]


async def test_approvals_and_denials_stand_where_they_happened() -> None:
    post = Post()
    async with Executor(graphs=[post.graph], model=post.model) as executor:
        run = await executor.start(post.graph, "Where is it?")
        assert run.transcript()[-1].open
        run = await executor.answer(run.run_id, run.waiting[0].id, Deny(reason="too early"), by="ann")
    said = [entry.to_json() for entry in run.transcript()]
    assert [one["kind"] for one in said] == ["message", "message", "turn", "question", "message", "turn"]
    assert said[3]["call"]["args"]["body"] == LETTER
    assert (said[3]["answer"]["type"], said[3]["answer"]["reason"], said[3]["by"]) == ("deny", "too early", "ann")
    assert (said[4]["role"], "too early" in said[4]["text"]) == ("tool", True)  # what the model was told of it
    assert not any(one["open"] for one in said)


async def test_results_and_thoughts_are_not_repeated(tmp_path: Path) -> None:
    run = await run_weather(f"sqlite:///{tmp_path}/runs.db")
    said = [entry.to_json() for entry in run.transcript()]
    assert [one["kind"] for one in said] == ["message", "message", "turn", "tool", "turn", "question", "tool", "turn"]
    assert [one["tool"] for one in said if one["kind"] == "tool"] == [search_web.name, send_mail.name]
    assert said[2]["calls"] == [{"name": "search_web", "args": {"query": "weather Oslo"}}]
    assert said[2]["usage"]["input_tokens"] == 412


async def test_what_a_compaction_replaced_is_counted_and_found(tmp_path: Path) -> None:
    run = await run_shortened(f"sqlite:///{tmp_path}/runs.db")
    cleared, *_, compacted = [entry.to_json() for entry in run.transcript() if entry.kind == "compaction"]
    assert (cleared["node"], compacted["node"]) == ("clear", "compact")
    assert cleared["replaced"]
    assert compacted["replaced"]
    whole = run.at(compacted["at"]).values["messages"]
    assert len(whole) > len(run.values["messages"])


async def test_pictures_are_named() -> None:
    request = {"messages": [{"role": "user", "content": "Look", "images": [{"url": "data:image/png;base64,QUJD"}]}]}
    started = r.EffectIntended(
        seq=3, ts=1, activation="a", node="n", key="k", kind="model", name="m", effect="idempotent", digest="d",
        request=request,
    )  # fmt: skip
    entry = Entry(1, 3, "message", started.activation, "", "n", message=request["messages"][0])
    assert entry.to_json()["pictures"] == ["image/png, 19 bytes"]


async def test_a_transcript_grows_by_its_end() -> None:
    run = await ran(STRATEGIES["tool_user"])
    whole = [entry.to_json() for entry in run.transcript()]
    for seq in range(1, run.seq + 1):
        part = [entry.to_json() for entry in run.at(seq).transcript()]
        fields = "number", "seq", "kind", "node"
        assert [[one[name] for name in fields] for one in part] == [
            [one[name] for name in fields] for one in whole[: len(part)]
        ]
        assert all(one == other for one, other in zip(part, whole, strict=False) if not one["open"])
