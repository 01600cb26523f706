"""`Route`: conditions on the state decide which edge follows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator import Context, Executor, Graph, Run, node
from orchestrator.errors import InvalidGraph
from orchestrator.nodes import Route, route
from orchestrator.nodes.route import GuardFault, check_guard, read_guard
from orchestrator.render.terminal.run_report import step_line
from orchestrator.stores.memory import MemoryStore
from orchestrator.testing import assert_crash_safe

pytestmark = pytest.mark.anyio


class User(BaseModel):
    name: str = "Ann"
    age: int | None = None


class Mail(BaseModel):
    kind: str = "other"
    score: float = 0
    count: int = 0
    tags: list[str] = []
    facts: dict[str, float] = {}
    user: User = User()
    size: Literal["s", "m"] = "s"
    note: str | None = None
    urgent: bool = False
    taken: str = ""


def goes(name: str) -> Any:
    @node
    def go(state: Mail, ctx: Context) -> dict[str, object]:
        return {"taken": name if ctx.error is None else ctx.error.message}

    return go


def graph(it: Route, *, error: bool = False) -> Graph:
    names = [*it.outcomes, *(["error"] if error else [])]
    edges = "\n".join(f"it -> to_{name} : {name}\nto_{name} -> END" for name in names)
    nodes = {f"to_{name}": goes(name) for name in names}
    return Graph(name="g", state=Mail, nodes={"it": it, **nodes}, edges=f"START -> it\n{edges}")


async def routed(it: Route, given: dict[str, Any], *, error: bool = False) -> Run:
    async with Executor() as executor:
        return await executor.start(graph(it, error=error), given)


MAIL = Route(cases={"billing": "kind == 'billing' && score > 0.5", "urgent": "urgent || count > 3"}, default="rest")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"kind": "billing", "score": 1}, "billing"),
        ({"kind": "billing", "score": 1, "urgent": True}, "billing"),
        ({"kind": "billing", "score": 0.5, "count": 4}, "urgent"),
        ({}, "rest"),
    ],
)
async def test_the_first_case_whose_guard_is_true_is_taken(given: dict[str, Any], taken: str) -> None:
    assert (await routed(MAIL, given)).values["taken"] == taken


@pytest.mark.parametrize(
    ("guard", "given"),
    [
        ("'x' in tags && size(tags) == 2", {"tags": ["x", "y"]}),
        ("tags.exists(t, t.startsWith('y'))", {"tags": ["x", "y"]}),
        ("facts['a'] >= 2.0", {"facts": {"a": 2}}),
        ("user.name == 'Bo'", {"user": {"name": "Bo"}}),
        ("has(user.age) && user.age != null && user.age > 17", {"user": {"age": 18}}),
        ("note == null", {}),
        ("note != null && note.contains('ü')", {"note": "für"}),
        ("size == 'm'", {"size": "m"}),
        ("kind.matches('^(a+)+$')", {"kind": "a" * 10_000}),
        ("count + 1 == 9223372036854775807", {"count": 2**63 - 2}),
        ("type(count) == int ? true : false", {}),
        ("kind == r'a\\b' // a comment: .map(", {"kind": "a\\b"}),
        ('kind != \'http://x.map(\' && kind != """it\'s .filter("""', {}),
    ],
)
async def test_guards_see_fields_of_all_types(guard: str, given: dict[str, Any]) -> None:
    assert (await routed(Route(cases={"yes": guard}, default="no"), given)).values["taken"] == "yes"


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ({"a": "kind =="}, "guard 'a' of it, 'kind ==', cannot be used: column 8: Syntax error: mismatched input"),
        ({"a": "kidn == 'x'"}, "port 'cases[kidn]' of it is 'kidn', and state Mail has no such field: did you mean"),
        ({"a": "kind > 1"}, "column 6: found no matching overload for '_>_' applied to '(string, int)'"),
        ({"a": "score > 1"}, "applied to '(double, int)'; beside a float, write whole numbers as 1.0"),
        ({"a": "kind"}, "it gives string, and a guard gives true or false"),
        ({"a": "tags.map(t, t + t).size() > 1"}, ".map() builds a list, which guards cannot do: use .exists()"),
        ({"a": "tags . filter (t, true) == tags"}, ".filter() builds a list"),
        ({"a": "tags.all(a, tags.all(b, a == b))"}, "more than one of .all(), .exists() and .exists_one()"),
        ({"a": "tags.all(a, tags. // hm\n all(b, a == b))"}, "more than one of .all()"),
        ({"a": "x" * 2001}, "it has 2,001 characters; the limit for a guard is 2,000"),
        ({"a": "(" * 200 + "urgent" + ")" * 200}, "recursion limit"),
        ({"a": "urgent\n && kind"}, "line 2, column 2: found no matching overload"),
        ({"a": "__import__('os').system('x')"}, "undeclared reference"),
        ({"a": "urgent", "error": "urgent"}, "it declares outcome 'error', which every node has"),
    ],
)  # fmt: skip
def test_guards_that_cannot_be_used_are_refused_with_their_place(cases: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidGraph) as caught:
        graph(Route(cases=cases, default="rest"))
    assert message in str(caught.value)


def test_all_faulty_guards_are_in_one_report() -> None:
    with pytest.raises(InvalidGraph) as caught:
        graph(Route(cases={"a": "kind >", "b": "count"}, default="rest"))
    assert "guard 'a'" in str(caught.value)
    assert "guard 'b'" in str(caught.value)


def test_without_a_default_an_edge_for_errors_is_needed() -> None:
    it = Route(cases={"yes": "urgent"})
    with pytest.raises(InvalidGraph, match="it takes no edge where no guard is true: set default=, or add 'it -> NODE"):
        graph(it)
    assert graph(it, error=True).nodes["it"].outcomes == ("yes",)
    with pytest.raises(ValidationError, match="there are no cases"):
        Route(cases={}, default="a")


async def test_without_a_true_guard_the_step_fails_with_all_cases() -> None:
    found = await routed(Route(cases={"yes": "urgent", "no": "count > 1"}), {}, error=True)
    assert found.values["taken"] == "it: no guard is true: yes, no; name a default"


@pytest.mark.parametrize(
    ("guard", "given", "why"),
    [
        ("tags[3] == 'x'", {"tags": []}, "evaluated: Index error: index=3 size=0 (types of the values: tags: array)"),
        ("user.rank == 1", {}, 'evaluated: Key not found in map : "rank" (types of the values: user: object)'),
        ("count + 1 > 0", {"count": 2**63 - 1}, "evaluated: integer overflow (types of the values: count: integer)"),
        ("10 / count > 1", {}, "it: guard 'first', '10 / count > 1', cannot be evaluated: divide by zero"),
        ("count > 0", {"count": 2**70}, "int too big to convert"),
        ("user.name", {}, "it gives string, and a guard gives true or false"),
        ("note", {}, "it gives null, and a guard gives true or false"),
        ("kind == 'x'", {"kind": "x" * 1_000_001}, "its data are too large for the work that it does on them: 1,000,0"),
        (" + ".join(["kind"] * 12) + " == ''", {"kind": "x" * 999_000}, "too large"),
        ("tags.all(t, (kind + kind).size() > 0)", {"tags": ["x"] * 1900, "kind": "x" * 9_000}, "too large"),
        ("tags.exists(t, t == 'x')", {"tags": ["yyyyyyy"] * 9000}, "its longest list 9,000 items"),
    ],
)
async def test_a_guard_that_cannot_be_evaluated_fails_the_step(guard: str, given: dict[str, Any], why: str) -> None:
    it = Route(cases={"first": guard, "second": "true"}, default="rest")
    found = await routed(it, given, error=True)
    assert why in found.values["taken"], found.values["taken"]


async def test_a_run_that_failed_at_a_guard_is_tried_again_with_other_guards() -> None:
    store = MemoryStore()
    async with Executor(store) as executor:
        run = await executor.start(graph(Route(cases={"first": "10 / count > 1"}, default="rest")), {})
        assert run.status == "failed"
        assert run.error is not None
        assert "(types of the values: count: integer)" in run.error.message
        again = graph(Route(cases={"first": "count > 1"}, default="rest"))
    async with Executor(store, graphs=[again]) as executor:
        run = await executor.resume(run.run_id, retry=True)
        assert (run.status, run.values["taken"]) == ("completed", "rest")


async def test_a_fault_behind_the_first_true_guard_is_kept_and_fails_nothing() -> None:
    found = await routed(Route(cases={"first": "true", "second": "tags[0] == 'x'"}, default="rest"), {})
    assert found.values["taken"] == "first"


async def test_values_of_all_guards_are_shown(tmp_path: Path) -> None:
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        found = await executor.start(graph(MAIL), {"count": 4})
        points = await executor.history(found.run_id)
        first = points[0]
        assert first.guards == {"billing": False, "urgent": True}
        assert first.to_json()["guards"] == {"billing": False, "urgent": True}
        assert "guards" not in points[1].to_json()
        assert "it -> urgent  [its guards: billing false, urgent true]" in step_line(first)
        explained = found.why(first.seq)
    assert "urgent -> to_urgent; decided by its guards: billing false, urgent true" in str(explained)


async def test_it_is_data_in_its_order_and_its_digest_depends_on_the_guards(tmp_path: Path) -> None:
    it = Route(cases={"zebra": "count > 1", "apple": "count > 0"}, default="rest")
    made = graph_of_data(it)
    path = tmp_path / "g.yaml"
    made.save(path)
    again = Graph.load(path)
    assert list(again.nodes["it"].outcomes) == ["zebra", "apple", "rest"]
    assert again.content == made.content
    assert "zebra: count > 1\n      apple: count > 0" in path.read_text()
    assert graph_of_data(it.with_(cases={"zebra": "count > 2", "apple": "count > 0"})).content != made.content
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:
        found = await executor.start(made, {"count": 2})
    async with Executor(f"sqlite:///{tmp_path}/runs.db") as executor:  # which reads the graph of the store
        plan = (await executor.load(found.run_id)).machine.plan
        assert plan.nodes["it"].outcomes == ("zebra", "apple", "rest")


def graph_of_data(it: Route) -> Graph:
    ends = "\n".join(f"it -> END : {outcome}" for outcome in it.outcomes)
    state = {"name": "S", "fields": {"count": {"type": "int", "default": 0}}}
    return Graph(name="g", state=state, nodes={"it": it}, edges=f"START -> it\n{ends}")


async def test_no_crash_changes_the_way() -> None:
    report = await assert_crash_safe(graph(MAIL), {"count": 4})
    assert report.status == "completed"


def test_without_the_extra_the_graph_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    route._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    with pytest.raises(
        InvalidGraph, match=r'need the extra `route`: python -m pip install "agent-graph-orchestrator\[route\]"'
    ):
        graph(MAIL)


def test_what_a_guard_names_is_found_without_the_library() -> None:
    assert read_guard("a.b == c && size(d) > 0 && 'e' in f[g] && h.i(j) && {'k': l}.k").fields == (
        "a", "c", "d", "f", "g", "h", "j", "l",
    )  # fmt: skip
    assert read_guard("xs.all(x, x > low)").fields == ("xs", "low")
    with pytest.raises(GuardFault):
        check_guard("a + b", {"a": int, "b": str})


def test_its_second_line_says_what_it_looks_at() -> None:
    assert MAIL.does == "by kind, score, urgent, count"
    assert "by kind, score, urgent, count" in graph(MAIL).to_text()
