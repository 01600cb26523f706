"""What a delivery does, whichever engine it comes from, and URLs of engines."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import anyio
import pytest
from pydantic import BaseModel

from orchestrator import Context, Executor, Graph, Update, engines, node
from orchestrator.engines import Delivered, Deliveries, EngineStatus, engine_at
from orchestrator.engines.restate.address import address_of
from orchestrator.errors import InvalidValue
from orchestrator.executor import WorkerHealth
from orchestrator.stores.base import Lease
from orchestrator.stores.rows import MAX_DEATHS

pytestmark = pytest.mark.anyio


class Count(BaseModel):
    n: int = 0


class Gate:
    """Steps wait here."""

    def __init__(self) -> None:
        self.opened, self.entered, self.times = anyio.Event(), anyio.Event(), 0


def gated(gate: Gate, name: str = "gated") -> Graph[Count]:
    """A graph whose first step waits at a gate."""

    @node
    async def first(state: Count) -> Update:
        gate.times += 1
        gate.entered.set()
        await gate.opened.wait()
        return {"n": state.n + 1}

    @node
    async def second(state: Count) -> Update:
        return {"n": state.n + 1}

    return Graph(
        name=name, state=Count, input="n", output="n", nodes={"first": first, "second": second},
        edges="START -> first -> second -> END",
    )  # fmt: skip


async def test_a_cancelled_delivery_does_not_end_the_drive_and_the_next_one_waits_for_it() -> None:
    gate = Gate()
    async with Executor(graphs=[gated(gate)]) as executor, anyio.create_task_group() as tasks:
        run_id, deliveries = await executor.enqueue("gated", 1), Deliveries(executor)
        with anyio.CancelScope() as cut:
            tasks.start_soon(gate_cancels, gate, cut)
            await deliveries.deliver(run_id)
        assert cut.cancelled_caught
        assert (await executor.load(run_id)).status == "running"
        tasks.start_soon(open_later, gate)
        assert await deliveries.deliver(run_id) == ("completed", None, 0)
        assert gate.times == 1
        assert await deliveries.deliver(run_id) == ("completed", None, 0)


async def gate_cancels(gate: Gate, cut: anyio.CancelScope) -> None:
    await gate.entered.wait()
    cut.cancel()


async def open_later(gate: Gate) -> None:
    await anyio.wait_all_tasks_blocked()
    gate.opened.set()


async def test_a_run_whose_graph_is_missing_or_is_not_for_this_worker_is_delivered_again_later_and_later() -> None:
    async with Executor(graphs=[gated(Gate())], idle="sleep") as executor:
        run_id = await executor.enqueue("gated", 1)
        others = Deliveries(executor, graphs=["another"])
        waits, tries = [], 0
        for _ in range(12):
            status, due, tries = await others.deliver(run_id, tries)
            assert status == "running"
            assert due is not None
            waits.append(due - time.time())
        assert tries == 12
        assert waits[0] < 0.5
        assert 14 < waits[-1] <= 30
        async with Executor(executor.store) as without:
            assert (await Deliveries(without).deliver(run_id, 3)).tries == 4


async def test_a_run_is_delivered_when_it_is_due_and_an_unknown_one_never() -> None:
    gate = Gate()
    gate.opened.set()
    async with Executor(graphs=[gated(gate)], idle="sleep") as executor:
        at = time.time() + 3600
        run_id, deliveries = await executor.enqueue("gated", 1, at=at), Deliveries(executor)
        assert await deliveries.deliver(run_id, 5) == ("running", at, 0)
        assert await deliveries.deliver("nosuch") == ("unknown", None, 0)


async def test_a_run_that_was_given_up_too_often_is_left_alone() -> None:
    async with Executor(graphs=[gated(Gate())], idle="sleep") as executor:
        run_id, deliveries = await executor.enqueue("gated", 1), Deliveries(executor)
        for number in range(MAX_DEATHS):
            lease = Lease(run_id, f"token {number}", "worker")
            assert await executor.store.take_lease(lease, ttl=30.0)
            await executor.store.drop_lease(run_id, lease.token, fault="it fails")
            status, due, _ = await deliveries.deliver(run_id)
            last = number == MAX_DEATHS - 1
            assert (status, due is None) == ("running", last), "it backs off, and is parked in the end"


async def test_a_drained_worker_lets_steps_end_and_leaves_the_rest_to_others() -> None:
    gate = Gate()
    async with Executor(graphs=[gated(gate)], idle="sleep") as executor:
        run_id, deliveries = await executor.enqueue("gated", 1), Deliveries(executor)
        found: list[object] = []

        async def deliver() -> None:
            found.append(await deliveries.deliver(run_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deliver)
            await gate.entered.wait()
            tasks.start_soon(open_later, gate)
            await deliveries.drain(10)
        ((status, due, _),) = found  # type: ignore[misc]
        assert (status, due is None) == ("interrupted", False)
        assert (await executor.load(run_id)).state == Count(n=2)
        assert (await deliveries.deliver(run_id)).due is not None, "it takes nothing more"
        assert await Deliveries(executor).deliver(run_id) == ("completed", None, 0)
        assert gate.times == 1


class Handed:
    """An engine in this process: runs are delivered as they are submitted."""

    def __init__(self) -> None:
        self.send, self.receive = anyio.create_memory_object_stream[str](16)

    async def submit(self, run_id: str, *, at: float | None = None) -> None:
        await self.send.send(run_id)

    async def cancel(self, run_id: str) -> None:
        """Nothing waits here."""

    async def status(self, run_id: str) -> EngineStatus:
        return "unknown"

    async def serve(self, deliveries: Deliveries, *, stop: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:

            async def hand() -> None:
                with self.receive:
                    async for run_id in self.receive:
                        tasks.start_soon(deliveries.deliver, run_id)

            tasks.start_soon(hand)
            await stop.wait()
            await self.aclose()

    async def aclose(self) -> None:
        self.send.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  a thread's view has no event
        await anyio.sleep(0.01)


async def test_health_and_metrics_know_delivered_runs_until_they_are_drained() -> None:
    gate, engine, health, stop = Gate(), Handed(), WorkerHealth(), anyio.Event()
    async with Executor(graphs=[gated(gate)], idle="sleep") as executor, anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            tasks.start_soon(
                partial(
                    engines.work, executor, engine, slots=3, poll=3600.0, stop=stop, grace=60.0, health=health
                )
            )  # fmt: skip
            await until(lambda: not health.readiness())
            run_id = await executor.enqueue("gated", 1)
            await engine.submit(run_id)
            await gate.entered.wait()
            assert (health.counts.taken["gated"], health.counts.driving["gated"], health.slots) == (1, 1, 6)
            stop.set()
            await until(lambda: "draining" in health.readiness())
            await anyio.wait_all_tasks_blocked()
            assert health.liveness() == "", "steps of a delivered run still work"
            (worker,) = await executor.workers.list()
            assert worker.state == "draining"
            gate.opened.set()
            await until(lambda: bool(health.liveness()))
            assert health.counts.driving["gated"] == 0
            assert health.counts.ended == {("gated", "interrupted"): 1}
            assert health.counts.given_up["gated"] == 0


async def test_an_answer_that_comes_when_the_run_has_just_paused_is_delivered() -> None:
    """The delivery of the answer comes before the one that drove the run is over, and after it saw the pause."""

    @node
    async def ask(state: Count, ctx: Context[None]) -> Update:
        await ctx.ask("input", prompt="Go on?")
        return {"n": 1}

    graph = Graph(name="asks", state=Count, output="n", nodes={"ask": ask}, edges="START -> ask -> END")
    async with Executor(graphs=[graph], idle="sleep") as executor:
        run_id, found = await executor.enqueue(graph, {}), list[object]()

        class Late(Deliveries):
            """The drive is over, and the run is answered, before the delivery is."""

            async def _driven(self, run_id: str, tries: int) -> Delivered:
                delivered = await super()._driven(run_id, tries)
                if delivered.status == "paused":
                    question = (await executor.load(run_id)).waiting[0]
                    await executor.answer(run_id, question.id, "yes", resume=False)
                    tasks.start_soon(second)
                    await anyio.wait_all_tasks_blocked()
                return delivered

        async def second() -> None:
            found.append(await deliveries.deliver(run_id))

        deliveries = Late(executor)
        async with anyio.create_task_group() as tasks:
            assert (await deliveries.deliver(run_id)).status == "paused"
        assert found == [("completed", None, 0)]


@pytest.mark.parametrize(
    "run_id", ["", "a" * 1_000_000, "a\0b", "../secret", "\x1b[2J", "\ud800", "'; DROP TABLE runs"]
)
async def test_a_delivery_of_what_can_be_no_run_is_over(
    run_id: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Executor(url) as executor:
        assert await Deliveries(executor).deliver(run_id) == ("unknown", None, 0)
    assert len(caplog.text) < 1000
    assert "\x1b" not in caplog.text


async def test_slots_bound_how_many_runs_are_driven() -> None:
    gate = Gate()
    async with Executor(graphs=[gated(gate)]) as executor, anyio.create_task_group() as tasks:
        deliveries = Deliveries(executor, slots=2)
        for _ in range(4):
            tasks.start_soon(deliveries.deliver, await executor.enqueue("gated", 1))
        await gate.entered.wait()
        await anyio.wait_all_tasks_blocked()
        assert gate.times == 2
        gate.opened.set()
    assert gate.times == 4
    for wrong in ({"slots": 0}, {"wait": -1.0}):
        with pytest.raises(ValueError, match="slots="):
            Deliveries(executor, **wrong)  # type: ignore[arg-type]


def test_a_url_of_restate_says_where_everything_is() -> None:
    found = address_of("restate://engine.internal:18080?admin=19070&listen=0.0.0.0&workers=http://lb:80&service=shop")
    assert (found.ingress, found.admin) == ("http://engine.internal:18080", "http://engine.internal:19070")
    assert (found.listen, found.workers, found.service) == (("0.0.0.0", 9080), "http://lb:80", "shop")
    plain = address_of("restate://")
    assert (plain.ingress, plain.admin) == ("http://127.0.0.1:8080", "http://127.0.0.1:9070")
    assert (plain.listen, plain.workers, plain.service) == (
        ("127.0.0.1", 9080),
        "http://127.0.0.1:9080",
        "orchestrator",
    )
    assert address_of("restate://[::1]?listen=[::1]:7000").workers == "http://[::1]:7000"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://x", "'kafka' is not the scheme"),
        ("", "no scheme"),
        ("restate://a:b", "is not an address"),
        ("restate://x?admin=h:99999999", "is not an address"),
        ("restate://x?port=1", "no parameter 'port'"),
        ("restate://user:secret@x", "no user, password or path"),
        ("restate://x/path", "no user, password or path"),
        ("restate://x?workers=lb:80", "use a URL"),
        ("restate://x?workers=http://[", "use a URL"),
        ("restate://[::1", "around an IPv6 address"),
        ("temporal://[::1", "around an IPv6 address"),
        ("http://[", "'http' is not the scheme"),
        ("restate://x?service=a b", "service=a b"),
    ],
)
def test_a_url_that_is_none_of_an_engine_says_why(url: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        engine_at(url)
