"""The crash kit finds nothing wrong with what ships, and finds what is wrong with ledgers that are broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from orchestrator import Context, Graph, Update, node
from orchestrator.executor.calls import reuse
from orchestrator.executor.calls.effect import Call, Effect, Ticket, witness
from orchestrator.executor.calls.perform import AttemptEffects
from orchestrator.executor.calls.under_way import UnderWay
from orchestrator.kernel.ledger import EffectEntry
from orchestrator.models import OfflineModel
from orchestrator.nodes import Ask
from orchestrator.strategies.chat import chat
from orchestrator.strategies.code_act import code_act
from orchestrator.strategies.evaluator_optimizer import evaluator_optimizer
from orchestrator.strategies.function_call import function_call
from orchestrator.strategies.function_call_agent import function_call_agent
from orchestrator.strategies.llm_compiler import llm_compiler
from orchestrator.strategies.orchestrator_workers import orchestrator_workers
from orchestrator.strategies.plan_and_execute import plan_and_execute
from orchestrator.strategies.plan_and_solve import plan_and_solve
from orchestrator.strategies.plan_and_solve_prompt import plan_and_solve_prompt
from orchestrator.strategies.react import react
from orchestrator.strategies.reflexion import reflexion
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.router import router
from orchestrator.strategies.self_ask import self_ask
from orchestrator.strategies.self_consistency import self_consistency
from orchestrator.strategies.supervisor import supervisor
from orchestrator.strategies.swarm import swarm
from orchestrator.strategies.tool_user import tool_user
from orchestrator.strategies.tree_of_thoughts import tree_of_thoughts
from orchestrator.testing import CrashReport, CrashUnsafe, assert_crash_safe, assert_kill_safe
from orchestrator.tools import tools_from_ref
from tests.support.sizes import quick_on, sized
from tests.support.stores import Places
from tests.testing.acting import KINDS, drawn_graph, ends, said
from tests.testing.acting import tools as acting_tools
from tests.testing.shop import Echo, Shop, Till, shop, yes

pytestmark = pytest.mark.anyio

STRATEGIES: Mapping[str, Callable[..., Graph]] = {
    "tool_user": tool_user,
    "function_call": function_call,
    "function_call_agent": function_call_agent,
    "react": react,
    "rewoo": rewoo,
    "plan_and_solve": plan_and_solve,
    "plan_and_solve_prompt": plan_and_solve_prompt,
    "chat": chat,
    "self_consistency": self_consistency,
    "evaluator_optimizer": evaluator_optimizer,
    "router": router,
    "orchestrator_workers": orchestrator_workers,
    "reflexion": reflexion,
    "plan_and_execute": plan_and_execute,
    "supervisor": supervisor,
    "swarm": swarm,
    "self_ask": self_ask,
    "tree_of_thoughts": tree_of_thoughts,
    "llm_compiler": llm_compiler,
    "code_act": code_act,
}
"""Every strategy that ships."""
stores = pytest.mark.parametrize("store", ["memory", "sqlite"])


# -- what ships ----------------------------------------------------------------------------------------------------


async def strategy_survives(
    name: str, question: str, store: Literal["memory", "sqlite"], most: int | None = None
) -> CrashReport:
    """Stop a strategy that ships, before and after so many of its writes."""
    report = await assert_crash_safe(
        STRATEGIES[name](),
        question,
        model=OfflineModel(),
        tools=tools_from_ref("arithmetic"),
        store=store,
        most=most,
        answer=lambda question: "/bye" if question.kind == "input" else None,
    )
    assert report.repeated > 0 or most is not None  # what was under way and may be done again is done again
    return report


@quick_on("asyncio")
@pytest.mark.parametrize("name", STRATEGIES)
async def test_every_strategy_survives_a_stop_at_every_write(name: str) -> None:
    most = sized(None if name == "chat" else 3, None)
    report = await strategy_survives(name, "What is 3 + 4?", "memory", most)
    assert report.stops > (most or report.writes)  # how steps share a write varies by one or two


@quick_on("trio")
@pytest.mark.parametrize("name", sized(["tool_user"], [*STRATEGIES]))
async def test_every_strategy_survives_stops_at_some_writes_to_a_file(name: str) -> None:
    assert (await strategy_survives(name, "What is 3 + 4?", "sqlite", most=sized(4, 9))).stops > 4


@pytest.mark.storm
@stores
@pytest.mark.parametrize("name", STRATEGIES)
async def test_every_strategy_survives_a_storm_of_stops(
    name: str, store: Literal["memory", "sqlite"], scale: int
) -> None:
    """At every write; at scale 1 at nine of them."""
    question = " + ".join(["What is 3 + 4 * 2", *map(str, range(min(scale, 5)))])
    most = 9 if scale == 1 else None
    report = await strategy_survives(name, question, store, most)
    assert report.stops > (most or report.writes)


@pytest.mark.parametrize(
    ("store", "most", "stops", "anyio_backend"),
    [
        ("memory", sized(4, 9), 1, "asyncio"),
        ("memory", sized(2, 4), 3, "trio"),
        ("sqlite", sized(1, 3), 2, "trio"),
        ("sqlite", sized(1, 2), 1, "asyncio"),
    ],
)
async def test_every_kind_of_effect_survives(store: Literal["memory", "sqlite"], most: int | None, stops: int) -> None:
    report = await assert_crash_safe(
        shop(), {"order": "o", "items": ["x", "y"]}, setup=Till().setup, model=Echo(), answer=yes, store=store,
        most=most, stops=stops,
    )  # fmt: skip
    assert report.status == "completed", report
    assert report.effects >= 12


# -- generated graphs ----------------------------------------------------------------------------------------------


async def survives(kind: str, seed: int, most: int, stops: int) -> bool:
    """Try a generated graph. False: it is of no use, as its outcome depends on timing."""
    found = drawn_graph(kind, seed)
    if found is None or not await ends(*found):
        return False
    graph, values = found
    await assert_crash_safe(
        graph, values, model=Echo(), setup=lambda: {"tools": acting_tools()}, answer=said, most=most, stops=stops,
        seed=seed,
    )  # fmt: skip
    return True


@quick_on("trio")
@settings(
    deadline=None,
    derandomize=True,
    max_examples=sized(1, 4),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 1_000_000), stops=st.integers(1, 3))
def test_generated_graphs_survive(kind: str, seed: int, stops: int, anyio_backend: str) -> None:
    assume(anyio.run(survives, kind, seed, 3, stops, backend=anyio_backend))


@pytest.mark.storm
def test_generated_graphs_survive_every_write(scale: int, anyio_backend: str) -> None:
    tried = 0
    for seed in range(1_000_000, 1_000_000 + 4 * scale):
        tried += sum(anyio.run(survives, kind, seed, 20, 1 + seed % 3, backend=anyio_backend) for kind in KINDS)
    assert tried >= 4 * scale


@pytest.mark.storm
@pytest.mark.parametrize(("store", "stops"), [("memory", 1), ("memory", 3), ("sqlite", 2)])
async def test_every_kind_of_effect_survives_every_write(
    store: Literal["memory", "sqlite"], stops: int, scale: int
) -> None:
    report = await assert_crash_safe(
        shop(), {"order": "o", "items": ["x", "y"]}, setup=Till().setup, model=Echo(), answer=yes, store=store,
        stops=stops, seed=scale,
    )  # fmt: skip
    assert report.status == "completed", report
    print(f"\nshop, {store}: {report}")


# -- what it finds -------------------------------------------------------------------------------------------------


async def found_in(**options: Any) -> str:
    """What the kit says of the shop."""
    with pytest.raises(CrashUnsafe) as caught:
        await assert_crash_safe(
            shop(), {"order": "o", "items": ["x", "y"]}, setup=Till().setup, model=Echo(), answer=yes, **options
        )
    return str(caught.value)


@quick_on("asyncio")
async def test_it_finds_a_ledger_that_settles_before_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(self: AttemptEffects, effect: Effect[Any]) -> Any:
        if effect.name != "pay":
            return await original(self, effect)
        settled, ticket = await self.begin(effect)
        if ticket is None:
            assert settled is not None
            return effect.decode(settled.result)
        asked: Any = effect.request["args"]
        found = effect.decode({"output": f"paid {asked['what']}"})  # it knows what will come of it
        self.end(ticket, effect, found)
        await self.attempt.log.durable()
        watching = witness.get()
        assert watching is not None
        return await watching.call(effect, ticket.key)

    original = AttemptEffects.perform
    monkeypatch.setattr(AttemptEffects, "perform", perform)
    assert "was never done" in await found_in()


async def test_it_finds_a_ledger_that_forgets_an_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def intend(self: UnderWay, call: Call, **options: Any) -> Ticket:
        if call.effect.name != "pay":
            return await original(self, call, **options)
        self._open.add(call.key)
        return Ticket(call.key, time.time(), True, self.attempt)

    original = UnderWay.intend
    monkeypatch.setattr(UnderWay, "intend", intend)
    found = await found_in()
    assert "does not say that it was intended" in found


async def test_it_finds_a_ledger_that_reuses_a_reply_for_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(entries: Sequence[EffectEntry], name: str, *_: object, **__: object) -> EffectEntry | None:
        return next((entry for entry in entries if entry.intended.name == name), None)

    monkeypatch.setattr(reuse, "find", known)
    assert "with another request" in await found_in()


async def test_it_finds_what_does_not_follow_from_the_journal() -> None:
    @node
    async def chance(ctx: Context[Any]) -> Update:
        await ctx.tool("look", what="first")
        ctx.deps.append("again")
        return {"reply": str(len(ctx.deps))}

    graph = Graph(name="chance", state=Shop, nodes={"n": chance}, edges="START -> n -> END", output="reply")
    with pytest.raises(CrashUnsafe, match=r"stopped (before|after) write [2-9] of \d+:\n  - output: "):
        await assert_crash_safe(graph, setup=lambda: {**Till().setup(), "deps": []})


async def test_it_finds_a_payment_that_no_ledger_knows_of() -> None:
    paid: list[str] = []

    @node
    async def pay(state: Shop) -> Update:
        paid.append("again")
        return {"log": [str(len(paid))]}

    graph = Graph(name="sly", state=Shop, nodes={"n": pay}, edges="START -> n -> END", output="log")
    with pytest.raises(CrashUnsafe):
        await assert_crash_safe(graph)


async def test_it_says_what_nobody_answers() -> None:
    graph = Graph(name="ask", state=Shop, nodes={"n": Ask(prompt="Sure?")}, edges="START -> n -> END")
    with pytest.raises(ValueError, match=r"n asks 'Sure\?': say what to answer, answer=\.\.\."):
        await assert_crash_safe(graph)


@quick_on("trio")
async def test_it_tries_no_more_than_it_is_told_to() -> None:
    report = await assert_crash_safe(
        shop(), {"order": "o", "items": []}, setup=Till().setup, model=Echo(), answer=yes, most=2
    )
    assert 2 <= report.stops <= 4
    assert str(report).startswith(f"completed after {report.writes} writes, ")


# -- real processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
def test_killed_processes_do_no_harm(anyio_backend: str) -> None:
    # How many moments a run has varies; whatever that is, the first kill of this seed comes long before its end.
    report = assert_kill_safe(
        "tests.testing.shop:shop_program", runs=1, kills=sized(1, 2), seed=7, backend=sized("asyncio", "trio")
    )
    assert report.status == "completed"
    assert report.stops >= 1, report


@pytest.mark.full
def test_killed_processes_do_no_harm_to_stores_of_any_url(places: Places) -> None:
    report = assert_kill_safe("tests.testing.shop:shop_program", runs=2, kills=2, seed=7, store=places.new)
    assert report.status == "completed"
    assert report.stops >= 1, report


@pytest.mark.storm
@pytest.mark.parametrize("program", ["shop_program", "tool_user_program"])
def test_a_storm_of_killed_processes_does_no_harm(program: str, scale: int, anyio_backend: str, places: Places) -> None:
    # A run that is quick may end before it is killed; of several, some are hit.
    report = assert_kill_safe(
        f"tests.testing.shop:{program}", runs=4 * scale, kills=8, seed=scale, backend=anyio_backend, store=places.new
    )
    print(f"\n{program} on {anyio_backend}: {report}")
    assert report.stops >= scale


@pytest.mark.parametrize("anyio_backend", sized(["asyncio"], ["trio"]))
def test_a_program_that_fails_is_heard(anyio_backend: str) -> None:
    with pytest.raises(RuntimeError, match=r"mute_program: the process ended with 1: (.|\n)*say what to answer"):
        assert_kill_safe("tests.testing.shop:mute_program", backend=anyio_backend)


@quick_on("asyncio")
async def test_it_finds_a_ledger_that_calls_again_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def charge() -> str:
        raise ValueError("charged, and then it broke")

    @node
    async def work(ctx: Context[Any]) -> Update:
        try:
            await ctx.effect("charge", charge, returns=str, effect="irreversible")
        except Exception:
            await ctx.effect("note", str.upper, "noted", returns=str)
        return {"log": ["done"]}

    graph = Graph(name="charge", state=Shop, nodes={"work": work}, edges="START -> work -> END")
    await assert_crash_safe(graph)
    original = reuse.find

    def known(*given: Any, **options: Any) -> EffectEntry | None:
        entry = original(*given, **options)
        failed = entry is not None and entry.settled is not None and not entry.settled.ok
        return None if failed else entry

    monkeypatch.setattr(reuse, "find", known)
    with pytest.raises(CrashUnsafe, match=r"charge .* was called again"):
        await assert_crash_safe(graph)
