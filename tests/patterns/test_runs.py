"""Each workflow pattern is seen in runs of its graph. Tasks that a test names are done by hand, in the test's order."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from orchestrator import Executor, Graph, node
from orchestrator.errors import InvalidGraph
from orchestrator.nodes import Wait
from tests.patterns.case import Play, play
from tests.patterns.page import patterns

pytestmark = pytest.mark.anyio


async def ended(number: int, **values: object) -> list[str]:
    """The steps of a completed run in which no task is done by hand."""
    async with play(number, **values) as case:
        assert case.status == "completed"
        return await case.done()


# -- basic control flow -------------------------------------------------------------------------------------------


async def test_wcp_1_the_second_task_begins_when_the_first_has_ended() -> None:
    async with play(1, "a", "b") as case:
        assert case.open == {"a": 1}
        await case.end("a")
        assert case.open == {"b": 1}
        await case.end("b")
        assert (case.status, await case.done()) == ("completed", ["a", "b"])


async def test_wcp_2_both_branches_are_open_at_the_same_time() -> None:
    async with play(2, "b", "c") as case:
        assert (await case.done(), case.open) == (["a"], {"b": 1, "c": 1})


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_wcp_3_what_follows_begins_once_when_both_have_come(order: str) -> None:
    async with play(3, "a", "b") as case:
        await case.end(order[0])
        assert case.open == {order[1]: 1}
        await case.end(order[1])
        assert (case.status, await case.done()) == ("completed", [*order, "j"])


@pytest.mark.parametrize(("amount", "taken"), [(500, "a"), (5, "b")])
async def test_wcp_4_one_branch_is_taken(amount: int, taken: str) -> None:
    assert await ended(4, amount=amount) == ["choose", taken]


@pytest.mark.parametrize(("amount", "taken"), [(500, "a"), (5, "b")])
async def test_wcp_5_whichever_was_taken_what_follows_begins(amount: int, taken: str) -> None:
    assert await ended(5, amount=amount) == ["choose", taken, "c"]


# -- branching and synchronization --------------------------------------------------------------------------------


@pytest.mark.parametrize(("amount", "taken"), [(500, {"a", "b"}), (50, {"a"}), (5, {"b"})])
async def test_wcp_6_one_or_more_branches_are_taken(amount: int, taken: set[str]) -> None:
    assert {*await ended(6, amount=amount)} == {"choose", *taken}


@pytest.mark.parametrize(("amount", "taken"), [(500, ["a", "b"]), (50, ["a"]), (5, ["b"])])
async def test_wcp_7_those_that_were_taken_are_waited_for(amount: int, taken: list[str]) -> None:
    async with play(7, "a", "b", amount=amount) as case:
        for task in taken:
            assert await case.count("j") == 0
            await case.end(task)
        assert (case.status, await case.count("j")) == ("completed", 1)


async def test_wcp_8_what_follows_begins_for_each_branch() -> None:
    async with play(8, "a", "b") as case:
        await case.end("b")
        assert await case.count("c") == 1
        await case.end("a")
        assert (case.status, await case.count("c")) == ("completed", 2)


async def test_wcp_9_the_first_goes_on_the_second_has_no_effect_and_the_next_round_starts_afresh() -> None:
    async with play(9, "a", "b") as case:
        await case.end("b")
        assert await case.count("j") == 1
        await case.end("a")
        assert await case.count("j") == 1
        await case.say(True)
        assert case.open == {"a": 1, "b": 1}
        await case.end("a")
        assert await case.count("j") == 2
        await case.end("b")
        await case.say(False)
        assert (case.status, await case.count("j")) == ("completed", 2)


async def test_wcp_28_the_next_round_waits_until_all_branches_of_this_one_have_come() -> None:
    async with play(28, "s/a", "s/b", items=[1, 2]) as case:
        await case.end("b")
        assert await case.done() == ["b", "j", "c"]
        assert case.open == {"a": 1}, "the second round has not begun"
        await case.end("a")
        assert case.open == {"a": 1, "b": 1}
        await case.end("a")
        await case.end("b")
        assert (case.status, await case.count("j"), await case.count("c")) == ("completed", 2, 2)


async def test_wcp_29_the_first_goes_on_and_the_second_is_cancelled() -> None:
    async with play(29, "a", "b") as case:
        await case.end("b")
        assert (case.status, await case.done()) == ("completed", ["b", "j"])
        assert not case.open


async def test_wcp_30_two_of_three_go_on_and_the_third_has_no_effect() -> None:
    async with play(30, "a", "b", "c") as case:
        await case.end("c")
        assert await case.count("j") == 0
        await case.end("a")
        assert (await case.count("j"), case.open) == (1, {"b": 1})
        await case.end("b")
        assert (case.status, await case.count("j")) == ("completed", 1)


async def test_wcp_31_the_next_round_waits_until_all_branches_of_this_one_have_come() -> None:
    async with play(31, "s/a", "s/b", "s/c", items=[1, 2]) as case:
        await case.end("b")
        await case.end("c")
        assert await case.done() == ["b", "c", "j", "d"]
        assert case.open == {"a": 1}, "the second round has not begun"
        await case.end("a")
        assert case.open == {"a": 1, "b": 1, "c": 1}


async def test_wcp_32_two_of_three_go_on_and_the_third_is_cancelled() -> None:
    async with play(32, "a", "b", "c") as case:
        await case.end("c")
        await case.end("a")
        assert (case.status, await case.done()) == ("completed", ["c", "a", "j"])
        assert not case.open


async def test_wcp_33_branches_that_come_several_times_are_joined_once() -> None:
    done = await ended(33)
    assert (done.count("x"), done.count("b"), done.count("j")) == (3, 1, 1)


async def test_wcp_37_branches_that_cross_each_other_are_waited_for() -> None:
    async with play(37, "a", "c", "d") as case:
        await case.end("c")
        await case.end("d")
        assert (await case.count("j"), await case.count("k")) == (0, 0)
        await case.end("a")
        assert (case.status, (await case.done())[-2:]) == ("completed", ["j", "k"])


async def test_wcp_38_a_branch_that_goes_round_again_is_waited_for() -> None:
    async with play(38, "b") as case:
        await case.end("b")
        for _ in range(3):
            await case.say(True)
            assert await case.count("j") == 0
        await case.say(False)
        assert (case.status, await case.count("a"), await case.count("j")) == ("completed", 4, 1)


async def test_wcp_41_three_threads_become_one() -> None:
    async with play(41, "w") as case:
        for left in (3, 2, 1):
            assert (case.open, await case.count("j")) == ({"w": left}, 0)
            await case.end("w")
        assert (case.status, await case.count("j")) == ("completed", 1)


async def test_wcp_42_one_thread_becomes_three() -> None:
    async with play(42, "w") as case:
        assert case.open == {"w": 3}


# -- multiple instances -------------------------------------------------------------------------------------------


async def test_wcp_12_nothing_waits_for_the_instances() -> None:
    async with play(12, "w") as case:
        assert (await case.count("b"), case.open) == (1, {"w": 3})
        for _ in range(3):
            await case.end("w")
        assert case.status == "completed"


async def all_instances(case: Play, count: int) -> None:
    """So many instances are open at once, and what follows waits for all of them, in any order."""
    assert case.open == {"w": count}
    for left in range(count, 0, -1):
        assert await case.count("j") == 0
        await case.end("w", left - 1)
    assert (case.status, await case.count("w"), await case.count("j")) == ("completed", count, 1)


async def test_wcp_13_as_many_instances_as_the_graph_says() -> None:
    async with play(13, "w") as case:
        await all_instances(case, 3)


@pytest.mark.parametrize("items", [[7], [7, 8, 9, 10]])
async def test_wcp_14_as_many_instances_as_the_state_says(items: list[int]) -> None:
    async with play(14, "w", items=items) as case:
        await all_instances(case, len(items))


async def test_wcp_15_instances_are_added_while_others_run() -> None:
    async with play(15, "w") as case:
        await case.say(True)
        await case.say(True)
        await case.end("w")
        await case.say(True)
        assert case.open == {"more": 1, "w": 2}
        await case.end("w")
        await case.end("w")
        assert await case.count("j") == 0, "another one may still be added"
        await case.say(False)
        assert (case.status, await case.count("w"), await case.count("j")) == ("completed", 3, 1)


async def test_wcp_34_two_instances_go_on_and_the_others_run() -> None:
    async with play(34, "w") as case:
        await case.end("w", 2)
        await case.end("w")
        assert (await case.count("j"), case.open) == (1, {"w": 1})
        await case.end("w")
        assert (case.status, await case.count("w"), await case.count("j")) == ("completed", 3, 1)


async def test_wcp_35_two_instances_go_on_and_the_others_are_cancelled() -> None:
    async with play(35, "w") as case:
        await case.end("w", 2)
        await case.end("w")
        assert (case.status, case.open, await case.count("w")) == ("completed", {}, 2)


@pytest.mark.parametrize("quorum", [1, 3])
async def test_wcp_36_the_state_says_how_many_are_enough(quorum: int) -> None:
    async with play(36, "w", quorum=quorum) as case:
        for _ in range(quorum):
            assert await case.count("j") == 0
            await case.end("w")
        assert (await case.count("j"), case.open) == (1, {"w": 3 - quorum} if quorum < 3 else {})


# -- state --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("event", "taken"), [("paid", "a"), ("lapsed", "b")])
async def test_wcp_16_what_happens_first_is_taken_and_the_other_withdrawn(event: str, taken: str) -> None:
    async with play(16) as case:
        assert case.open == {"bill": 1, "end": 1}
        await case.send(event)
        assert (case.status, (await case.done())[-2:]) == ("completed", ["came", taken])


@pytest.mark.parametrize("number", [17, 40])
async def test_wcp_17_and_40_one_task_is_open_at_a_time(number: int) -> None:
    async with play(number, "a", "b", "c") as case:
        order = []
        while case.open:
            ((task, count),) = case.open.items()
            assert count == 1
            order.append(task)
            await case.end(task)
        assert (case.status, sorted(order)) == ("completed", ["a", "b", "c"])
        assert order.index("a") < order.index("b")


@pytest.mark.parametrize("order", ["abc", "acb", "cab"])
async def test_wcp_17_behind_events_the_surroundings_choose_the_order(order: str) -> None:
    """Every order that keeps to the partial one, in which b follows a."""
    names = patterns()[17].names
    flow: Any = names["flow"]
    waits = {f"may_{task}": Wait(event=task) for task in "abc"}
    one, edges = names["one"], "START -> may_a, may_c\nmay_a -> a -> may_b -> b\nmay_c -> c\nb, c -> j -> END"
    graph = flow(edges, **waits, a=one, b=one, c=one, j=names["join"], pools={"one": 1})
    async with Executor(graphs=[graph]) as executor:
        case = Play(executor, graph, await executor.start(graph))
        for task in order:
            await case.send(task)
        assert case.status == "completed"
        assert [task for task in await case.done() if task in "abc"] == [*order]


async def test_wcp_40_each_task_is_done_once() -> None:
    assert sorted(await ended(40)) == ["a", "b", "c", "j"]


async def test_wcp_18_the_task_can_be_done_while_the_state_lasts_and_not_behind_it() -> None:
    async with play(18) as case:
        await case.send("a")
        await case.send("a")
        assert (await case.count("a"), case.open) == (2, {"open": 1, "closed": 1})
        await case.send("close")
        assert (case.status, await case.count("a"), await case.count("b")) == ("completed", 2, 1)


async def test_wcp_39_one_part_is_active_at_a_time() -> None:
    async with play(39, "a/x", "a/y", "b/x", "b/y") as case:
        for task in ("x", "y", "x", "y"):
            assert case.open == {task: 1}
            await case.end(task)
        assert (case.status, await case.done()) == ("completed", ["x", "y", "a", "x", "y", "b", "j"])


# -- cancellation -------------------------------------------------------------------------------------------------


async def test_wcp_19_a_task_that_is_offered_is_withdrawn() -> None:
    async with play(19, "a") as case:
        assert case.open == {"a": 1, "stop": 1}
        await case.send("stop")
        assert (case.status, case.open, await case.done()) == ("completed", {}, ["stop", "j"])


async def test_wcp_19_a_task_that_is_under_way_is_cancelled() -> None:
    begun, cancelled = anyio.Event(), anyio.Event()

    @node
    async def slow(state: Any) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    graph: Graph = patterns()[19].graph.replace(a=slow)
    async with Executor(graphs=[graph]) as executor:
        run_id = await executor.submit(graph)
        with anyio.fail_after(20):
            await begun.wait()
            run = await executor.send(run_id, "stop", "stop")
            run = await executor.wait(run_id)
            await cancelled.wait()
    assert run.status == "completed"


async def test_wcp_20_the_whole_case_is_given_up() -> None:
    async with play(20, "a", "b") as case:
        await case.end("a")
        await case.cancel()
        assert (case.status, case.open) == ("cancelled", {})


async def test_wcp_25_the_tasks_of_the_region_are_withdrawn() -> None:
    async with play(25, "a", "b") as case:
        await case.end("a")
        await case.send("stop")
        assert (case.status, case.open, await case.count("b"), await case.count("j")) == ("completed", {}, 0, 1)


async def test_wcp_26_all_instances_are_withdrawn() -> None:
    async with play(26, "w") as case:
        await case.end("w")
        await case.send("stop")
        assert (case.status, case.open, await case.count("k"), await case.count("j")) == ("completed", {}, 0, 1)
        assert case.run.values["done"] == []


async def test_wcp_26_without_a_stop_all_are_waited_for() -> None:
    async with play(26, "w") as case:
        for _ in range(3):
            await case.end("w")
        assert (case.status, await case.count("w"), await case.count("k")) == ("completed", 3, 1)


async def test_wcp_27_the_case_goes_on_with_the_results_of_those_that_are_done() -> None:
    async with play(27, "w") as case:
        await case.end("w")
        await case.end("w", 1)
        await case.send("enough", "yes")
        assert (case.status, await case.count("w"), await case.count("a")) == ("completed", 2, 1)
        assert case.run.values["done"] == ["w", "w"]


async def test_wcp_27_without_a_message_all_are_waited_for_and_it_is_asked_for() -> None:
    async with play(27, "w") as case:
        for _ in range(3):
            await case.end("w")
        assert (case.open, await case.count("j"), await case.count("a")) == ({"enough": 1}, 1, 0)


# -- iteration ----------------------------------------------------------------------------------------------------


async def test_wcp_10_the_cycle_is_entered_and_left_at_two_places() -> None:
    async with play(10, amount=500) as case:
        await case.say(True)
        await case.say(True)
        await case.say(False)
        assert (case.status, await case.done()) == ("completed", ["s", "a", "b", "c", "a", "b"])
    async with play(10) as case:
        await case.say(True)
        await case.say(False)
        assert (case.status, await case.done()) == ("completed", ["s", "b", "c"])


def test_wcp_10_a_path_to_a_join_past_its_fork_is_refused() -> None:
    names = patterns()[10].names
    flow: Any = names["flow"]
    with pytest.raises(InvalidGraph, match="no branches meet at j"):
        flow("START -> s\ns -> f : large\ns -> a : small\nf -> a, b -> j -> END", s=names["large"], j=names["join"])


@pytest.mark.parametrize("rounds", [0, 3])
async def test_wcp_21_a_part_is_repeated_while_a_condition_holds(rounds: int) -> None:
    async with play(21) as case:
        for _ in range(rounds):
            await case.say(True)
        await case.say(False)
        assert (case.status, await case.count("a")) == ("completed", rounds)


async def test_wcp_22_a_task_contains_its_graph() -> None:
    async with play(22, tools=patterns()[22].names["rest"], amount=3) as case:
        assert (case.status, case.run.values["reply"]) == ("completed", "3 2 1 0")


# -- termination --------------------------------------------------------------------------------------------------


async def test_wcp_11_the_case_ends_when_nothing_is_left_to_do() -> None:
    async with play(11, "a", "b") as case:
        await case.end("b")
        assert case.status == "paused"
        await case.end("a")
        assert case.status == "completed"


async def test_wcp_43_the_case_ends_whatever_is_under_way() -> None:
    async with play(43, "a", "b") as case:
        await case.end("a")
        assert (case.status, case.open, await case.done()) == ("completed", {}, ["a"])


# -- triggers -----------------------------------------------------------------------------------------------------


async def test_wcp_23_a_signal_that_comes_early_is_not_lost_and_the_sender_can_see_that_no_task_waits_for_it() -> None:
    async with play(23, "a") as case:
        assert not any(question.event == "go" for question in case.run.waiting)
        await case.send("go")
        await case.end("a")
        assert (case.status, await case.done()) == ("completed", ["a", "go", "b"])


async def test_wcp_24_a_signal_is_kept_until_a_task_takes_it() -> None:
    async with play(24, "a") as case:
        await case.send("go")
        await case.end("a")
        assert (case.status, await case.done()) == ("completed", ["a", "go", "b"])
    async with play(24) as case:
        assert case.open == {"go": 1}
        await case.send("go")
        assert (case.status, await case.count("b")) == ("completed", 1)
