"""Evaluations: what becomes of each row, what is paid, and what a second part of an evaluation does."""

from __future__ import annotations

import gc
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from pydantic import BaseModel

from orchestrator import Approve, Context, Executor, Graph, node, tool
from orchestrator.errors import GraphUnknown, InvalidInput, InvalidValue, ModelUnavailable
from orchestrator.evaluation import Case, Evaluation, GraphJudge, Progress, Verdict, evaluate
from orchestrator.evaluation.kept import NAMESPACE
from orchestrator.evaluation.results import Tally, WrongCase
from orchestrator.graph.limits import NO_USAGE, Usage
from orchestrator.models import ModelRequest, Price, RateLimit, Reply
from orchestrator.models.offline.simulated import SimulatedModel
from orchestrator.nodes import Confirm
from orchestrator.stores import open_store
from orchestrator.strategies.rewoo import rewoo
from orchestrator.strategies.tool_user import tool_user
from tests.evaluation.graphs import Asked, Counted, direct, refined, voted
from tests.support.sizes import sized

pytestmark = pytest.mark.anyio


def rows(*words: str) -> list[dict[str, object]]:
    return [{"id": word, "question": word, "expected": word} for word in words]


WORDS = rows("a", "b", "c", "d")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


async def test_figures_of_each_graph_and_model(url: str) -> None:
    good, bad = Counted("good"), Counted("bad", wrong="a b")
    found = await evaluate(WORDS, [direct(), refined(), voted()], models={"good": good, "bad": bad}, store=url)
    by_name = {one.name: one for one in found.variants}
    assert [*by_name] == ["direct good", "direct bad", "refined good", "refined bad", "voted good", "voted bad"]
    assert {name: one.accuracy for name, one in by_name.items() if "direct" in name} == {
        "direct good": 1.0, "direct bad": 0.5,
    }  # fmt: skip
    one = by_name["voted good"]
    assert (one.model_calls, one.rounds, one.cost, one.tokens) == (8, 1.0, 8.0, 16)
    assert by_name["refined good"].rounds == 2
    assert (by_name["direct bad"].low, by_name["direct bad"].high) == pytest.approx((0.15, 0.85), abs=0.01)
    assert found.cost == len(good.requests) + len(bad.requests) == 4 * 2 * (1 + 2 + 2)
    apart = next(one for one in found.differences if (one.first, one.second) == ("direct good", "direct bad"))
    assert (apart.only_first, apart.only_second, apart.p, apart.difference) == (2, 0, 0.5, 0.5)
    assert [(one.row, one.variant, one.answer, one.expected) for one in found.wrong][:2] == [
        ("a", "direct bad", "wrong", "a"), ("a", "refined bad", "wrong", "a"),
    ]  # fmt: skip
    assert Evaluation.from_json(found.to_json()).to_json() == found.to_json()
    assert found.to_text().splitlines()[0].split()[:3] == ["variant", "accuracy", "95"]


async def test_the_same_call_again_pays_nothing_and_gives_the_same(url: str) -> None:
    model = Counted(wrong="c")
    first = await evaluate(WORDS, direct(), models=model, store=url)
    again = await evaluate(WORDS, direct(), models=model, store=url)
    assert (len(model.requests), first.taken, again.taken, again.cost) == (4, 0, 4, first.cost)
    assert again.variants == first.variants
    other = await evaluate(WORDS, direct(prompt="Say:"), models=model, store=url)
    assert (len(model.requests), other.taken) == (8, 0)  # another prompt: other runs


async def test_another_model_behind_the_same_label_or_name_of_nodes_is_run_again(url: str) -> None:
    graph, big = direct(), direct(name="big").with_model("big")
    for answer, right in (("a b c d", 0.0), ("", 1.0)):
        model = Counted(f"model-{right}", wrong=answer)
        found = await evaluate(WORDS, graph, models={"candidate": model}, store=url)
        assert (found.variants[0].accuracy, found.taken, found.variants[0].model) == (right, 0, "candidate")
        found = await evaluate(WORDS, big, node_models={"big": model}, store=url)
        assert (found.variants[0].accuracy, found.taken, len(model.requests)) == (right, 0, 8)


async def test_graphs_that_differ_in_the_code_of_their_tools_are_two_variants_and_equal_ones_are_refused() -> None:
    def looking(answer: str) -> Graph:
        @tool(risk="read", effect="read")
        def look() -> str:
            """Look."""
            return answer

        @node(tools=[look])
        async def ask(state: Asked, ctx: Context) -> dict[str, str]:
            return {"answer": str((await ctx.tool("look")).output)}

        return Graph(
            name="look", state=Asked, input="question", output="answer", nodes={"ask": ask},
            edges="START -> ask -> END",
        )  # fmt: skip

    found = await evaluate(rows("a"), [looking("a"), looking("b")])
    assert [one.accuracy for one in found.variants] == [1.0, 0.0]
    with pytest.raises(InvalidValue, match=r"two variants are called 'look@[0-9a-f]{6}'"):
        await evaluate(rows("a"), [looking("a"), looking("a")])


async def test_a_failed_row_is_wrong_and_may_be_tried_again(url: str) -> None:
    model = Counted()
    found = await evaluate(rows("a", "fail"), direct(), models=model, store=url)
    (one,) = found.variants
    assert (one.accuracy, one.statuses, one.rows) == (0.5, {"completed": 1, "failed": 1}, 2)
    assert (found.wrong[0].row, found.wrong[0].status, found.wrong[0].why) == ("fail", "failed", "the run is failed")
    asked = len(model.requests)
    await evaluate(rows("a", "fail"), direct(), models=model, store=url)
    assert len(model.requests) == asked
    await evaluate(rows("a", "fail"), direct(), models=model, store=url, retry_failed=True)
    assert len(model.requests) > asked


async def test_forks_and_replays_of_rows_are_no_rows(url: str) -> None:
    model = Counted()
    first = await evaluate(WORDS, direct(), models=model, store=url)
    async with Executor(url, graphs=[direct()], model=model) as executor:
        page = await executor.runs(labels={"evaluation": "rows"})
        run_id = page.runs[0].run_id
        replay = await executor.replay(run_id)
        await executor.fork(run_id, at=1, run_id="fork")
        assert replay.same
        assert len((await executor.runs(labels={"evaluation": "rows"})).runs) == 5  # the fork has the labels
    again = await evaluate(WORDS, direct(), models=model, store=url)
    assert (again.cases, again.cost, again.variants) == (4, first.cost, first.variants)


async def test_a_changed_file_is_said_row_by_row(url: str) -> None:
    model = Counted()
    await evaluate(WORDS, direct(), models=model, store=url)
    changed: list[dict[str, object]] = [*rows("a", "c"), {"id": "b", "question": "x", "expected": "x"}]
    changed[0]["expected"] = "z"
    found = await evaluate(changed, direct(), models=model, store=url)
    assert found.changed == (
        "row 'a', line 1: what is expected changed since an earlier part",
        "row 'b', line 3: its input changed since an earlier part",
        "row 'd' of an earlier part is no longer in the data",
    )
    assert (len(model.requests), found.taken) == (5, 2)  # only the changed input is paid for
    assert found.variants[0].accuracy == pytest.approx(2 / 3)


async def test_bad_rows_are_all_said_before_anything_is_called(url: str) -> None:
    model = Counted()
    bad: list[dict[str, object]] = [
        {"question": "q"},
        {"question": {"x": 1}, "expected": "1"},
        {"expected": "1"},
        *rows("a"),
    ]
    with pytest.raises(InvalidInput) as caught:
        await evaluate(bad, direct(), models=model, store=url)
    first, *lines = str(caught.value).splitlines()
    assert first == "data 'rows' has 3 rows that cannot be used, and nothing was called:"
    assert [line.split(":")[0].strip() for line in lines] == ["line 1", "line 2", "line 3"]
    assert "has no expected answer" in lines[0]
    assert model.requests == []
    with pytest.raises(InvalidInput, match="has no rows"):
        await evaluate([], direct(), models=model, store=url)


async def test_a_budget_stops_in_time_and_a_larger_one_continues(url: str) -> None:
    model = Counted()
    found = await evaluate(WORDS, refined(), models=model, store=url, budget=5.0, concurrency=4)
    assert len(model.requests) == 5
    assert (found.cost, found.stopped) == (5.0, "the budget of 5 is spent")
    assert found.done < found.cases == 4
    more = await evaluate(WORDS, refined(), models=model, store=url, budget=8.0, concurrency=4)
    assert (len(model.requests), more.cost, more.stopped, more.done) == (8, 8.0, "", 4)


async def test_a_budget_too_small_for_the_first_call_says_what_it_may_cost(url: str) -> None:
    class Bounded(Counted):
        price = Price(input=1000, output=1000)
        options: ClassVar[dict[str, object]] = {}

        async def respond(self, request: ModelRequest) -> Reply:
            usage = Usage(input_tokens=10, output_tokens=10, cost=0.02)
            return (await super().respond(request)).model_copy(update={"usage": usage})

    model = Bounded()
    found = await evaluate(WORDS, direct(), models=model, store=url, budget=0.1)
    assert (found.done, model.requests) == (0, [])
    assert re.fullmatch(
        r"the next call may cost 1\.\d+, and 0\.1 of 0\.1 is left: raise the budget, or bound the reply .*",
        found.stopped,
    )
    model.options = {"max_tokens": 20}  # type: ignore[misc]
    found = await evaluate(WORDS, direct(), models=model, store=url, budget=0.2)
    assert (found.done, found.stopped) == (4, "")


async def test_a_budget_without_known_prices_is_refused_at_once(url: str) -> None:
    model = Counted(priced=False)
    with pytest.raises(InvalidValue, match="'counted' is unknown"):
        await evaluate(WORDS, direct(), models=model, store=url, budget=5.0)
    with pytest.raises(InvalidValue, match="'counted' is unknown"):
        await evaluate(
            WORDS,
            direct(),
            models=Counted("good"),
            judge_model=model,
            scorers=GraphJudge(judge()),
            store=url,
            budget=5.0,
        )
    assert model.requests == []


class Question(BaseModel):
    """The state of a judge."""

    question: str = ""
    expected: str = ""
    answer: str = ""
    verdict: str = ""


def judge() -> Graph:
    @node
    async def read(state: Question, ctx: Context) -> dict[str, str]:
        await ctx.model.complete(f"Right? {state.answer}")
        return {"verdict": "yes" if state.answer == state.expected else "no"}

    return Graph(
        name="judge", state=Question, input=("question", "expected", "answer"), output="verdict",
        nodes={"read": read}, edges="START -> read -> END",
    )  # fmt: skip


async def test_judges_are_runs_inside_the_budget_and_people_may_disagree(url: str) -> None:
    model, judging = Counted(wrong="b"), Counted("judging")
    found = await evaluate(
        WORDS, direct(), models=model, judge_model=judging, scorers=[GraphJudge(judge()), "exact"], store=url
    )
    assert (found.variants[0].accuracy, found.cost, len(judging.requests)) == (0.75, 8.0, 4)
    async with Executor(url) as executor:
        runs = (await executor.runs(labels={"evaluation": "rows"})).runs
        judged = [one for one in runs if "judged" in one.labels]
        assert len(judged) == 4
        assert found.agreement is None
        for one in runs:
            if one.labels.get("evaluation.row") in ("a", "b", "c"):
                word = one.labels["evaluation.row"]
                await executor.notes.write(one.run_id, score=0.0 if word in "ab" else 1.0, by="ann", name="quality")
    again = await evaluate(
        WORDS,
        direct(),
        models=model,
        judge_model=judging,
        scorers=[GraphJudge(judge()), "exact"],
        store=url,
        budget=8.5,
    )
    assert (len(model.requests), len(judging.requests), again.cost) == (4, 4, 8.0)
    # The judge says right, wrong, right; people say wrong, wrong, right: (2 / 3 - 4 / 9) / (1 - 4 / 9)
    assert again.agreement is not None
    assert (again.agreement.cases, again.agreement.agreed) == (3, 2)
    assert again.agreement.kappa == pytest.approx(0.4)
    assert "kappa 0.40" in again.to_text()


async def test_a_judge_is_asked_again_when_what_it_judges_or_its_model_changed(url: str) -> None:
    model = Counted()

    async def judged(data: list[dict[str, object]], judging: Counted, **options: Any) -> tuple[float, int]:
        scorer = GraphJudge(judge())
        found = await evaluate(
            data, direct(), models=model, judge_model=judging, scorers=scorer, store=url, **options
        )  # fmt: skip
        return found.variants[0].accuracy, len(judging.requests)

    first, second = Counted("first"), Counted("second")
    data = rows("a", "b")
    assert await judged([data[0], {**data[1], "expected": "x"}], first) == (0.5, 2)
    assert await judged(data, first) == (1.0, 3)  # the right answer of one row was corrected
    assert await judged(data, second) == (1.0, 2)
    assert len(model.requests) == 2


async def test_a_judge_that_failed_is_tried_again_with_the_rows_that_failed(url: str) -> None:
    class Down(Counted):
        down = True

        async def respond(self, request: ModelRequest) -> Reply:
            if self.down:
                raise ValueError("down")
            return await super().respond(request)

    judging, found = Down("judging"), []
    for retry in (False, False, True):
        scorer = GraphJudge(judge())
        one = await evaluate(
            WORDS, direct(), models=Counted(), judge_model=judging, scorers=scorer, store=url, retry_failed=retry
        )
        found.append(one.variants[0].accuracy)
        judging.down = len(found) < 2
    assert found == [0.0, 0.0, 1.0]


async def test_a_judge_must_take_what_is_judged() -> None:
    with pytest.raises(GraphUnknown, match="judge 'voted-args' takes"):
        GraphJudge(voted().model_copy(update={"name": "voted-args", "input": ("question", "words")}))


async def test_repeats_have_seeds_of_their_own_and_count_a_row_once(url: str) -> None:
    model = Counted(wrong="a")
    found = await evaluate(WORDS, direct(), models=model, store=url, repeat=3, seed=7)
    assert len({one.options["seed"] for one in model.requests}) == 12
    (one,) = found.variants
    assert (one.runs, one.rows, one.accuracy, found.done) == (12, 4, 0.75, 12)
    plain = Counted()
    plain.takes_seed = False
    await evaluate(WORDS, direct(), models=plain, store="memory://", seed=7)
    assert not any("seed" in one.options for one in plain.requests)


async def test_equal_requests_of_a_run_have_seeds_of_their_own_also_when_it_continues() -> None:
    class Voting(Counted):
        """Refuses the second request once."""

        refuses = False

        async def respond(self, request: ModelRequest) -> Reply:
            if self.refuses and self.requests:
                self.refuses = False
                raise ModelUnavailable("busy")
            return await super().respond(request)

    graph, sent = voted().replace(b=voted().nodes["a"]), []
    for refuses in (False, False, True):
        model, store = Voting(), open_store("memory://")
        model.refuses = refuses
        first = await evaluate(rows("a"), graph, models=model, store=store, seed=7)
        assert first.interrupted == refuses
        await evaluate(rows("a"), graph, models=model, store=store, seed=7)
        await store.close()
        assert model.requests[0].messages == model.requests[1].messages
        sent.append([one.options["seed"] for one in model.requests])
    assert len(set(sent[0])) == 2
    assert all(isinstance(one, int) and 0 <= one < 2**31 for one in sent[0])
    assert set(sent[0]) == set(sent[1]) == set(sent[2])
    other = Counted()
    await evaluate(rows("a"), graph, models=other, seed=8)
    assert not {one.options["seed"] for one in other.requests} & set(sent[0])


async def test_the_cache_of_nodes_is_off_unless_it_is_asked_for(url: str) -> None:
    model = Counted()
    graph = direct()
    cached = graph.replace(ask=graph.nodes["ask"].with_(cache=3600, effect="idempotent", reads={"question", "answer"}))
    await evaluate(WORDS, cached, models=model, store=url, name="one", cache=True)
    await evaluate(WORDS, cached, models=model, store=url, name="two")
    assert len(model.requests) == 8
    await evaluate(WORDS, cached, models=model, store=url, name="three", cache=True)
    assert len(model.requests) == 8


async def test_a_rate_limit_holds_for_all_rows_together() -> None:
    limit, most = RateLimit(concurrency=2), []

    class Watched(Counted):
        async def respond(self, request: Any) -> Any:
            most.append(limit.statistics().running)
            return await super().respond(request)

    await evaluate(WORDS, [direct(), voted()], models=Watched(), rate=limit, concurrency=8)
    assert len(most) == 12
    assert max(most) == 2


async def test_an_approval_of_a_person_is_seen_by_the_scorer_of_confirmations(url: str) -> None:
    @tool(risk="write")
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    class Bill(BaseModel):
        tool: str = "pay"
        args: dict[str, int] = {"amount": 5}
        question: str = ""

    @node
    async def call(state: Bill, ctx: Context) -> dict[str, object]:
        await ctx.tool(state.tool, **state.args)
        return {}

    graph = Graph(
        name="bill", state=Bill, input="question", output="tool",
        nodes={"ask": Confirm(tool="tool", args="args"), "pay": call},
        edges="START -> ask\nask -> pay : approved\nask -> END : denied\npay -> END",
    )  # fmt: skip
    data = [{"id": "1", "question": "q", "expected": "pay", "calls": ["pay"], "confirmed": ["pay"]}]
    scorers = ["confirmations", "calls", "exact"]
    paused = await evaluate(data, graph, tools=[pay], store=url, scorers=scorers)
    assert paused.variants[0].statuses == {"paused": 1}
    async with Executor(url, graphs=[graph], tools=[pay]) as executor:
        (row,) = (await executor.runs(labels={"evaluation": "rows"})).runs
        run = await executor.load(row.run_id)
        await executor.answer(row.run_id, run.waiting[0].id, Approve(), by="ann")
    found = await evaluate(data, graph, tools=[pay], store=url, scorers=scorers)
    assert found.variants[0].scores == {"confirmations": 1.0, "calls": 1.0, "exact": 1.0}
    free = await evaluate(data, graph, tools=[pay], store=url, name="free", scorers=scorers, approve="write")
    assert free.variants[0].scores["confirmations"] == 0.0
    assert free.wrong[0].why == "called without an approval: pay"


async def test_scores_are_notes_on_the_runs_and_the_result_is_kept_for_the_page(url: str) -> None:
    def close(case: Case) -> Verdict:
        return Verdict(0.25 if case.text == "a" else 1.0, "off")

    found = await evaluate(rows("a", "b"), direct(), models=Counted(), store=url, scorers=close, name="n")
    async with Executor(url) as executor:
        (note,) = await executor.notes.list(found.wrong[0].run_id)
        assert (note.score, note.name, note.text, note.by) == (0.25, "close", "expected: a; off", "orchestrator eval")
        kept = await executor.memory.get(NAMESPACE, "n")
        assert kept is not None
        assert Evaluation.from_json(kept.value) == found
    await evaluate(rows("a", "b"), direct(), models=Counted(), store=url, scorers=close, name="n")
    async with Executor(url) as executor:
        assert await executor.notes.list(found.wrong[0].run_id) == [note]


async def test_a_scorer_that_raises_makes_its_row_wrong_and_says_why(url: str) -> None:
    def broken(case: Case) -> bool:
        return 1 // (case.text not in ("b", "c")) == 1

    def strict(case: Case) -> bool:
        raise InvalidInput("no")

    model = Counted()
    found = await evaluate(WORDS, direct(), models=model, store=url, scorers=[broken, strict])
    assert (found.done, found.variants[0].accuracy, found.variants[0].scores["strict"]) == (4, 0.5, 0.0)
    assert [one.row for one in found.wrong] == ["b", "c"]
    assert "broken gave no verdict: scorer 'broken' failed at row 'b'" in found.wrong[0].why
    assert "ZeroDivisionError" in found.to_text()
    found = await evaluate(WORDS, direct(), models=model, store=url)
    assert (len(model.requests), found.taken, found.variants[0].accuracy) == (4, 4, 1.0)


class Refusing(Counted):
    """Refuses requests that end with one of some words, for now."""

    def __init__(self, name: str = "refusing", words: str = "") -> None:
        super().__init__(name)
        self.words = words

    async def respond(self, request: ModelRequest) -> Reply:
        if request.messages[-1].content.split()[-1] in self.words.split():
            raise ModelUnavailable("out of memory")
        return await super().respond(request)


async def test_a_row_that_a_server_refuses_is_wrong_until_the_next_part(url: str) -> None:
    model, judging = Refusing(words="b"), Refusing("judging", words="c")
    scorer = GraphJudge(judge())
    for _ in range(5):  # however often it was interrupted
        found = await evaluate(WORDS, direct(), models=model, judge_model=judging, scorers=scorer, store=url)
        assert (found.done, found.interrupted, found.stopped, found.outage) == (4, 2, "", False)
        assert found.variants[0].statuses == {"completed": 3, "interrupted": 1}
        assert [(one.row, one.status, one.why) for one in found.wrong] == [
            ("b", "interrupted", "the run is interrupted: out of memory"),
            ("c", "completed", "judge:judge gave no verdict: out of memory"),
        ]
        assert "cases that a model interrupted: 2; the next part tries them again" in found.to_text()
    model.words = judging.words = ""
    found = await evaluate(WORDS, direct(), models=model, judge_model=judging, scorers=scorer, store=url)
    assert (found.variants[0].accuracy, found.interrupted, found.taken) == (1.0, 0, 3)
    assert (len(model.requests), len(judging.requests)) == (4, 4)


async def test_a_model_that_is_down_stops_the_evaluation_with_what_there_is(url: str) -> None:
    data = rows("a", *"bcdefgh")
    model, other = Refusing(words="b c d e f g h"), Counted("other")
    found = await evaluate(data, direct(), models={"m": model, "o": other}, store=url, concurrency=1)
    assert (found.outage, found.interrupted, found.done) == (True, 5, 11)
    assert found.stopped == "5 cases in a row were interrupted, the last one by this: out of memory"
    assert [one.rows for one in found.variants] == [6, 5]
    model.words = ""
    found = await evaluate(data, direct(), models={"m": model, "o": other}, store=url, concurrency=1)
    assert (found.outage, found.stopped, found.done, found.variants[0].accuracy) == (False, "", 16, 1.0)
    assert (len(model.requests), len(other.requests)) == (8, 8)


async def test_names_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(InvalidValue, match="each with its own name"):
        await evaluate(WORDS, direct(), models=Counted(), scorers=["exact", "exact"])
    with pytest.raises(InvalidValue, match="has no '/'"):
        await evaluate(WORDS, direct(), models=Counted(), name="a/b")


async def test_a_result_with_long_texts_is_kept(url: str) -> None:
    data = [{"id": f"{at}", "question": f"{at} {'𝄞' * 400}", "expected": "𝄞" * 399} for at in range(sized(60, 400))]
    found = await evaluate(data, [direct(), refined()], models=Counted(), store=url, name="long")
    async with Executor(url) as executor:
        kept = await executor.memory.get(NAMESPACE, "long")
        assert kept is not None
        assert 0 < len(kept.value["wrong"]) <= len(found.wrong)


def test_results_are_read_in_a_thread_while_further_cases_are_added() -> None:
    """The figures of a copy stay, also if the first case of a variant is added while they are made."""
    made = cast("Any", SimpleNamespace(run=SimpleNamespace(seconds=1.0), model_calls=1, tool_calls=0, rounds=1))
    made.usage = NO_USAGE
    tally = Tally(["a"], 3, 1)

    def add(at: int) -> None:
        case = WrongCase(at, "a", 1, str(at), at, "run", "failed" if at else "completed", "", "", "")
        tally.add(case, made, {"exact": Verdict(0.0)})
        tally.people.append((True, True))

    def figures(one: Tally) -> object:
        return one.result("a", "a", "m", priced=True), one.wrong(), one.agreement(), one.done

    for at in range(3):
        copied, before = tally.copy(), figures(tally)
        add(at)
        assert figures(copied) == before != figures(tally)


async def test_progress_has_a_rate_and_the_time_that_is_left() -> None:
    seen: list[Progress] = []
    await evaluate(WORDS, direct(), models=Counted(), progress=seen.append, budget=9.0)
    assert [(one.done, one.cases) for one in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert (seen[-1].left, seen[-1].cost, seen[-1].budget) == (0.0, 4.0, 9.0)
    assert Progress(5, 20, 3, 4.0, 0.0, None).left == 30.0  # 2 of its own in 4 seconds
    assert Progress(3, 20, 3, 4.0, 0.0, None).left is None


async def test_a_simulated_model_errs_at_its_rate_and_says_so(url: str) -> None:
    model = SimulatedModel(0.1)
    found = await evaluate(
        "arithmetic", sized([rewoo()], [tool_user(), rewoo()]), models=model, scorers="number", tools="arithmetic",
        store=url, approve="none",
    )  # fmt: skip
    assert found.simulated
    assert "simulated" in found.to_text()
    assert all(0.3 < one.accuracy < 1 for one in found.variants)
    right = await evaluate("arithmetic", rewoo(), models=SimulatedModel(0), scorers="number", tools="arithmetic")
    assert right.variants[0].accuracy == 1


class Many:
    """Rows that are made when they are read."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[dict[str, object]]:
        return ({"id": at, "question": f"q{at}", "expected": f"q{at}"} for at in range(self._count))


async def test_thousands_of_rows_stay_flat_in_memory(url: str) -> None:
    @node(effect="pure")
    async def same(state: Asked) -> dict[str, str]:
        return {"answer": state.question}

    graph = Graph(
        name="same", state=Asked, input="question", output="answer", nodes={"a": same}, edges="START -> a -> END"
    )
    few, many = sized((40, 200), (1000, 10_000))
    sizes: dict[int, int] = {}

    def weigh(progress: Progress) -> None:
        if progress.done in (few, many):
            gc.collect()
            sizes[progress.done] = tracemalloc.get_traced_memory()[0]

    store = open_store(url)
    await evaluate(Many(few), graph, store=store, name="before")  # fills caches
    tracemalloc.start()
    found = await evaluate(Many(many), graph, store=store, progress=weigh)
    tracemalloc.stop()
    await store.close()
    assert (found.done, found.variants[0].accuracy) == (many, 1.0)
    assert (sizes[many] - sizes[few]) / (many - few) < 1000, sizes  # bytes for each further row: numbers and a key
