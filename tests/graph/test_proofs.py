"""What the shape of a graph proves, with a witness where it does not."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from orchestrator import Context, Graph, Outcome, local, merge, tool
from orchestrator.graph import Limits, Node, Proof, node
from orchestrator.graph.checks.lost_proofs import unbounded
from orchestrator.nodes import Complete, Confirm, Execute, Subgraph


class State(BaseModel):
    x: int = 0
    xs: list[int] = []


class XUpdate(TypedDict, total=False):
    x: int


class Act(Node):
    async def run(self, state: State, ctx: object) -> None: ...


class Look(Act):
    @property
    def sees_tools(self) -> bool:
        return False


act = Look(effect="irreversible")
think = Look()
confirm = Confirm()


def proofs(edges: str, limits: Limits | None = None, /, **nodes: Node) -> list[Proof]:
    graph = Graph(name="g", state=State, nodes=nodes, edges=edges, limits=limits)
    return list(graph.check(prove=True).proofs)


def confirmed(edges: str, **nodes: Node) -> list[tuple[str, str]]:
    """Of each claim about a confirmation its verdict, and the path that breaks it."""
    return [(proof.verdict, path(proof)) for proof in proofs(edges, **nodes) if proof.about == "confirmed"]


def path(proof: Proof) -> str:
    return " -> ".join(map(str, proof.witness))


NOTHING = "no node calls a tool of risk write or higher"


def test_nothing_is_proved_unasked() -> None:
    assert Graph(name="g", state=State, nodes={"a": act}, edges="START -> a -> END").check().proofs == ()


def test_every_path_to_a_node_that_acts_passes_a_confirm() -> None:
    edges = "START -> think -> sure\nsure -> act : approved\nsure -> think : denied\nact -> END"
    found = proofs(edges, think=think, sure=confirm, act=act)
    assert [(proof.about, proof.claim, proof.verdict) for proof in found] == [
        ("confirmed", "every path to act passes a confirmation", "proved"),
        ("bounded", "every cycle spends a limit", "proved"),
        ("joins", "every join can fire", "proved"),
        ("ends", "every node can reach an end", "proved"),
        ("writes", "no two concurrent branches write one plain field", "proved"),
    ]


def test_a_path_around_the_confirm_is_shown() -> None:
    edges = """
        START -> think -> sure, again
        sure -> act : approved
        sure -> END : denied
        again -> act -> END
    """
    nodes = {"think": think, "sure": confirm, "again": think, "act": act.with_(join="each")}
    assert confirmed(edges, **nodes) == [("refuted", "START -> think -> again -> act")]


def test_a_denial_is_no_approval() -> None:
    edges = "START -> sure -> act -> END"  # the one edge is taken by a denial too
    assert confirmed(edges, sure=confirm, act=act) == [("refuted", "START -> sure (denied) -> act")]
    edges = "START -> sure\nsure -> act : denied\nsure -> END : approved\nact -> END"
    assert confirmed(edges, sure=confirm, act=act) == [("refuted", "START -> sure (denied) -> act")]


def test_an_approval_covers_one_run_of_a_node_and_not_the_next_round() -> None:
    edges = (
        "START -> sure\nsure -> act : approved\nsure -> END : denied\nact -> think\nthink -> {} : error\nthink -> END"
    )
    once, again = edges.format("sure"), edges.format("act")
    assert confirmed(once, sure=confirm, act=act, think=think) == [("proved", "")]
    way = "START -> sure (approved) -> act -> think (error) -> act"
    assert confirmed(again, sure=confirm, act=act, think=think) == [("refuted", way)]


def test_an_approval_covers_several_nodes_behind_it() -> None:
    edges = "START -> sure\nsure -> act : approved\nsure -> END : denied\nact -> more -> END"
    assert confirmed(edges, sure=confirm, act=act, more=act) == [("proved", ""), ("proved", "")]


def test_an_empty_map_passes_no_confirm() -> None:
    edges = "START -> think -> sure : each xs\nsure -> done : approved\nsure -> END : denied\ndone -> act -> END"
    nodes = {"think": think, "sure": confirm, "done": think.with_(join="all"), "act": act}
    assert confirmed(edges, **nodes) == [("refuted", "START -> think (xs is empty) -> done -> act")]


def test_a_spent_limit_passes_no_confirm() -> None:
    edges = "START -> think -> sure\nsure -> END\n* -> act : exhausted\nact -> END"
    found = confirmed(edges, think=think, sure=confirm, act=act)
    assert found == [("refuted", "START -> think (a limit is spent) -> act")]


@tool(risk="dangerous")
def wipe() -> str:
    """Delete everything."""
    return "gone"


class CallState(Execute.State):
    x: int = 0


ask = Confirm(tool="tool", args="args")
CALL = "START -> ask\nask -> execute : approved\nask -> END : denied\nexecute -> END"
BEHIND = "START -> ask\nask -> {0} : approved\nask -> END : denied\n{0} -> execute -> END"


def of_calls(edges: str, tools: Any = None, **nodes: Any) -> list[tuple[str, str, str]]:
    """Verdict, reason and path of each claim about a confirmation."""
    graph = Graph(name="g", state=CallState, nodes=nodes, edges=edges)
    found = graph.check(prove=True, tools=tools).proofs
    return [(proof.verdict, proof.reason, path(proof)) for proof in found if proof.about == "confirmed"]


@node(writes={"args"})
def other(state: CallState) -> None:
    """Another call than the one that was approved."""


@node(writes={"x"})
def note(state: CallState) -> None:
    """Something else."""


@node
def silent(state: CallState) -> dict[str, object]:
    """Nothing says what it writes."""
    return {}


def test_a_confirmed_call_is_the_call_that_is_made() -> None:
    assert of_calls(CALL, ask=ask, execute=Execute()) == [("proved", "", "")]
    assert of_calls(BEHIND.format("note"), ask=ask, note=note, execute=Execute()) == [("proved", "", "")]
    without = "without one it may call wipe (dangerous)"
    way = "START -> ask (approved) -> other -> execute"
    found = of_calls(BEHIND.format("other"), [wipe], ask=ask, other=other, execute=Execute())
    assert found == [("refuted", without, way)]
    theirs = Execute(tool="other_tool", args="other_args")
    graph = Graph(name="g", state=OtherState, nodes={"ask": ask, "execute": theirs}, edges=CALL)
    assert graph.check(prove=True, tools=[wipe]).proofs[0].verdict == "refuted"


class OtherState(CallState):
    other_tool: str = ""
    other_args: dict[str, Any] = {}  # noqa: RUF012  pydantic copies it


called: list[str] = []


@tool(risk="dangerous", name="wipe")
def counted_wipe() -> str:
    """Delete everything, and count it."""
    called.append("/")
    return "gone"


TWICE = "the call is approved once, and another branch makes it, too"
free_call = Execute(result=None)
still = Look(writes=frozenset())


@pytest.mark.parametrize(
    ("edges", "nodes"),
    [
        ("ask -> x : approved each xs\nx -> END", {"x": free_call}),
        ("ask -> x, y : approved\nx, y -> END", {"x": free_call, "y": free_call}),
        ("ask -> a, b : approved\na, b -> x -> END", {"a": still, "b": still, "x": free_call.with_(join="each")}),
        (
            "ask -> x, a : approved\na -> a2 -> y\nx, y -> END",
            {"x": free_call, "a": still, "a2": still, "y": free_call},
        ),
    ],
)
def test_a_call_that_is_approved_once_and_made_by_several_branches_is_shown(edges: str, nodes: dict[str, Node]) -> None:
    class Each(CallState):
        xs: list[int] = [1, 2]  # noqa: RUF012  pydantic copies it

    edges = f"START -> ask\nask -> END : denied\n{edges}"
    graph = Graph(name="g", state=Each, nodes={"ask": ask, **nodes}, edges=edges)
    found = [proof for proof in graph.check(prove=True, tools=[counted_wipe]).proofs if proof.about == "confirmed"]
    assert {(proof.verdict, proof.reason) for proof in found} == {("refuted", TWICE)}
    assert all(str(proof.witness[1]) == "ask (approved)" for proof in found)
    unknown = graph.check(prove=True).proofs[0]
    assert (unknown.verdict, unknown.reason.split(":")[0]) == ("undecided", "it may call any tool")
    called.clear()
    run = graph.run_sync({"tool": "wipe"}, tools=[counted_wipe], approve="dangerous")
    assert (run.status, called) == ("completed", ["/", "/"])  # by one approval


@pytest.mark.parametrize(
    ("edges", "nodes"),
    [
        ("ask -> x, a : approved\nx, a -> END", {"x": free_call, "a": still}),
        ("ask -> a, b : approved\na, b -> x -> END", {"a": still, "b": still, "x": free_call.with_(join="all")}),
        ("ask -> a : approved each xs\na -> x -> END", {"a": still, "x": free_call.with_(join="all")}),
        ("ask -> a : approved\na -> x : error\na -> y\nx, y -> END", {"a": still, "x": free_call, "y": free_call}),
        ("ask -> x, sure : approved\nsure -> y : approved\nsure -> END : denied\nx, y -> END",
         {"x": free_call, "sure": ask, "y": free_call}),
    ],
)  # fmt: skip
def test_a_call_that_one_branch_makes_is_covered_by_the_approval_before_the_fork(
    edges: str, nodes: dict[str, Node]
) -> None:
    class Each(CallState):
        xs: list[int] = [1, 2]  # noqa: RUF012  pydantic copies it

    edges = f"START -> ask\nask -> END : denied\n{edges}"
    graph = Graph(name="g", state=Each, nodes={"ask": ask, **nodes}, edges=edges)
    found = [proof for proof in graph.check(prove=True, tools=[wipe]).proofs if proof.about == "confirmed"]
    assert {proof.verdict for proof in found} == {"proved"}


def test_an_approval_that_a_branch_uses_beside_a_join_of_others_leaves_the_claim_undecided() -> None:
    edges = """
        START -> ask
        ask -> END : denied
        ask -> x, a, b : approved
        a, b -> y -> END
        x -> END
    """
    nodes: dict[str, Node] = {"ask": ask, "x": free_call, "a": still, "b": still, "y": free_call.with_(join="all")}
    found = of_calls(edges, [wipe], **nodes)
    why = "the call is approved once, and another branch may make it, too"
    assert [(verdict, reason) for verdict, reason, _ in found if verdict != "proved"] == [("undecided", why)]


@pytest.mark.parametrize(
    ("inputs", "outputs", "verdict"),
    [
        ({"tool": "tool", "args": "args"}, {"args": "args"}, "proved"),
        ({"tool": "tool"}, {"tool": "tool", "args": "args"}, "proved"),
        ({"tool": "tool", "args": "args"}, {"result": "result"}, "refuted"),  # other arguments are left inside
        ({"args": "args"}, {"args": "args"}, "refuted"),
    ],
)
def test_an_approval_of_a_call_inside_a_subgraph_holds_behind_it_where_outputs_bring_the_call(
    inputs: dict[str, str], outputs: dict[str, str], verdict: str
) -> None:
    asking = Graph(name="asking", state=CallState, nodes={"ask": ask}, edges="START -> ask -> END")
    sub = Subgraph(asking, inputs=inputs, outputs=outputs, outcomes=("approved", "denied"))
    assert of_calls(CALL, [wipe], ask=sub, execute=Execute())[0][0] == verdict
    changing = Graph(
        name="changing", state=CallState, nodes={"other": Look(writes=frozenset({"tool"})), "ask": ask},
        edges="START -> other -> ask -> END",
    )  # fmt: skip
    sub = Subgraph(changing, inputs=inputs, outputs=outputs, outcomes=("approved", "denied"))
    brought = "tool" in outputs  # else the call outside has the tool from before
    assert of_calls(CALL, [wipe], ask=sub, execute=Execute())[0][0] == ("proved" if brought else "refuted")


def test_a_node_that_may_write_the_approved_call_leaves_the_claim_undecided() -> None:
    reason = "silent may write the call that was approved: declare writes="
    way = "START -> ask (approved) -> silent -> execute"
    found = of_calls(BEHIND.format("silent"), [wipe], ask=ask, silent=silent, execute=Execute())
    assert found == [("undecided", reason, way)]


def test_what_a_confirm_lets_through_by_policy_is_named() -> None:
    lax = Confirm(tool="tool", args="args", from_risk="dangerous")
    reason = "ask lets calls of risk write through without asking"
    assert of_calls(CALL, ask=lax, execute=Execute()) == [("proved", reason, "")]
    strict = Confirm(tool="tool", args="args", from_risk="write")
    assert of_calls(CALL, ask=strict, execute=Execute()) == [("proved", "", "")]


def test_what_a_confirm_lets_through_by_policy_is_named_across_subgraphs() -> None:
    lax, strict = (Confirm(tool="tool", args="args", from_risk=risk) for risk in ("dangerous", "write"))
    call = {"tool": "tool", "args": "args"}
    calling: Any = Graph(name="calling", state=CallState, nodes={"run": Execute()}, edges="START -> run -> END")
    for depth in (1, 2):  # the call goes in through the inputs of each
        sub = Subgraph(calling, inputs=call, outputs={"result": "result"})
        reason = "ask lets calls of risk write through without asking"
        assert of_calls(CALL, ask=lax, execute=sub) == [("proved", reason, "")]
        assert of_calls(CALL, ask=strict, execute=sub) == [("proved", "", "")]
        calling = Graph(name=f"around{depth}", state=CallState, nodes={"sub": sub}, edges="START -> sub -> END")
    asking = Graph(name="asking", state=CallState, nodes={"ask": lax}, edges="START -> ask -> END")
    sub = Subgraph(asking, inputs=call, outputs=call, outcomes=("approved", "denied"))  # it comes out of this one
    reason = "ask/ask lets calls of risk write through without asking"
    assert of_calls(CALL, ask=sub, execute=Execute()) == [("proved", reason, "")]
    both = """
        START -> ask -> again : approved
        ask, again -> END : denied
        again -> execute : approved
        execute -> END
    """
    assert of_calls(both, ask=lax, again=strict, execute=Execute()) == [("proved", "", "")]


wiped: list[str] = []


@tool(risk="dangerous", name="wipe")
def really_wipe() -> str:
    """Delete everything."""
    wiped.append("/")
    return "gone"


@tool(risk="none", name="wipe")
def harmless_wipe() -> str:
    """Delete nothing."""
    return "nothing"


def judged_by(asked: Any, called: Any, from_risk: Any = "write") -> Graph[Any]:
    nodes = {
        "ask": Confirm(tool="tool", args="args", from_risk=from_risk, tools=asked),
        "execute": Execute(tools=called),
    }
    return Graph(name="g", state=CallState, nodes=nodes, edges=CALL)


@pytest.mark.parametrize("called", [None, (really_wipe,), ("wipe",)])
def test_a_confirmation_that_asks_about_another_tool_of_the_name_does_not_cover_the_call(called: Any) -> None:
    graph = judged_by((harmless_wipe,), called)
    proof = graph.check(prove=True, tools=[really_wipe]).proofs[0]
    reason = "without one it may call wipe (dangerous); ask asks about another tool of that name"
    assert (proof.verdict, proof.reason, path(proof)) == ("refuted", reason, "START -> ask (approved) -> execute")
    wiped.clear()
    run = graph.run_sync({"tool": "wipe"}, tools=[really_wipe])
    assert (run.status, wiped) == ("completed", ["/"])  # without a question


@pytest.mark.parametrize(
    ("asked", "called", "given", "from_risk", "verdict"),
    [
        (None, (really_wipe,), [harmless_wipe], "write", "refuted"),
        (None, (really_wipe,), [], "write", "proved"),  # the confirmation fails: there is no such tool
        (None, (really_wipe,), None, "write", "undecided"),
        ((harmless_wipe,), None, None, "write", "undecided"),
        ((harmless_wipe,), None, [really_wipe], None, "proved"),  # it asks about every call
        ((harmless_wipe,), (really_wipe,), None, None, "proved"),
        ((wipe,), (really_wipe,), None, "write", "proved"),  # two tools of one risk
        ((wipe,), None, None, "write", "proved"),
        (("wipe",), None, None, "write", "proved"),
        (None, ("wipe",), None, "write", "proved"),
    ],
)
def test_which_tools_a_confirmation_asks_about_is_compared_with_those_that_are_called(
    asked: Any, called: Any, given: Any, from_risk: Any, verdict: str
) -> None:
    proof = judged_by(asked, called, from_risk).check(prove=True, tools=given).proofs[0]
    assert proof.verdict == verdict
    if verdict == "undecided" and called is not None:
        assert proof.reason == "ask may ask about another tool of the same name: pass --tools"


def test_without_tools_a_call_that_is_not_confirmed_leaves_the_claim_undecided() -> None:
    edges = "START -> execute -> END"
    reason = "it may call any tool: name its tools, tools=[...], or pass --tools"
    assert of_calls(edges, execute=Execute()) == [("undecided", reason, "START -> execute")]
    named = Execute(tools=("wipe", "look"))
    reason = "tool wipe is not declared: pass --tools"
    assert of_calls(edges, [look], execute=named) == [("undecided", reason, "START -> execute")]
    assert of_calls(edges, [look, wipe], execute=named)[0][0] == "refuted"
    assert of_calls(edges, [look], execute=Execute()) == [("proved", "", "")]


def test_a_subgraph_that_acts_unconfirmed_is_shown_with_the_path_inside() -> None:
    inner = Graph(name="inner", state=State, nodes={"act": act}, edges="START -> act -> END")
    assert confirmed("START -> sub -> END", sub=Subgraph(inner)) == [("refuted", "START -> sub/START -> sub/act")]
    edges = "START -> sure\nsure -> sub : approved\nsure -> END : denied\nsub -> END"
    assert confirmed(edges, sure=confirm, sub=Subgraph(inner)) == [("proved", "")]


def test_an_approval_inside_a_subgraph_holds_behind_it() -> None:
    for target, verdict in (("sure", "proved"), ("END", "refuted")):
        edges = f"START -> sure\nsure -> END : approved\nsure -> no : denied\nno -> {target}"
        asking = Graph(
            name="a", state=State, nodes={"sure": confirm, "no": think}, edges=edges, limits=Limits(steps=None)
        )
        assert confirmed("START -> sub -> act -> END", sub=Subgraph(asking), act=act)[0][0] == verdict


def test_a_graph_used_as_a_tool_confirms_its_own_calls() -> None:
    made = Graph(
        name="inner",
        state=CallState,
        nodes={"execute": Execute().with_(tools=(wipe,))},
        edges="START -> execute -> END",
    )
    helper = made.as_tool("helper", "Helps.", risk="none")
    graph = Graph(
        name="g", state=CallState, nodes={"execute": Execute().with_(tools=(helper,))}, edges="START -> execute -> END"
    )
    found = [proof for proof in graph.check(prove=True).proofs if proof.about == "confirmed"]
    assert [(proof.verdict, proof.tool, path(proof)) for proof in found] == [("refuted", "helper", "START -> execute")]


def test_an_agent_that_is_its_own_tool_is_proved_once() -> None:
    tools: list[Any] = []
    graph = Graph(name="g", state=CallState, nodes={"execute": Execute()}, edges="START -> execute -> END")
    tools.append(graph.as_tool("itself", "Itself.", risk="none"))
    assert [proof.verdict for proof in graph.check(prove=True, tools=tools).proofs] == ["proved"] * 5


def test_a_cycle_that_spends_no_limit_is_shown() -> None:
    edges = "START -> a -> b -> a\na -> END : error"
    free = Limits(steps=None)
    loose = next(proof for proof in proofs(edges, free, a=think, b=think) if proof.about == "bounded")
    why = "a -> b -> a goes round without end: set Limits(steps=...), or visits= of one of these nodes"
    assert (loose.verdict, loose.reason, path(loose)) == ("refuted", why, "START -> a -> b -> a")


class Asks(Look):
    if_named = ("too_long",)


@pytest.mark.parametrize(
    ("limits", "cycle"),
    [
        (Limits(steps=None, visits={"a": 1}), "a -> b -> a"),
        (Limits(steps=None, visits={"b": 1}), ""),
        (Limits(steps=9, visits={"a": 1}), ""),
    ],
)
def test_a_request_that_is_too_long_is_no_visit(limits: Limits, cycle: str) -> None:
    """It is made again, so that visits do not bound a cycle of such requests."""
    nodes, edges = {"a": Asks(), "b": think}, "START -> a -> END\na -> b : too_long\nb -> a"
    graph = Graph(name="g", state=State, nodes=nodes, edges=edges, limits=limits)
    found = next(proof for proof in graph.check(prove=True).proofs if proof.about == "bounded")
    assert (found.verdict, path(found)) == (("refuted", "START -> a (too_long) -> b -> a") if cycle else ("proved", ""))
    assert " -> ".join(unbounded(graph)) == cycle


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(), "a, b: steps (1,000)"),
        (Limits(steps=None, visits={"b": 3}), "a, b: visits of b (3)"),
        (Limits(steps=None, seconds=2.5), "a, b: seconds (2.5)"),
        (Limits(steps=9, visits={"a": 2}), "a, b: visits of a (2), steps (9)"),
    ],
)
def test_the_limit_that_bounds_a_cycle_is_named(limits: Limits, reason: str) -> None:
    edges = "START -> a -> b -> a\na -> END : error"
    bounded = next(proof for proof in proofs(edges, limits, a=think, b=think) if proof.about == "bounded")
    assert (bounded.verdict, bounded.reason) == ("proved", reason)


def test_a_cycle_that_an_empty_map_makes_shorter_is_shown() -> None:
    edges = "START -> p -> w : each xs\nw -> j\nj -> p : error\nj -> END"
    nodes = {"p": think, "w": think, "j": think.with_(join="all")}
    found = next(
        proof for proof in proofs(edges, Limits(steps=None, visits={"w": 3}), **nodes) if proof.about == "bounded"
    )
    assert path(found) == "START -> p (xs is empty) -> j (error) -> p"


def test_a_cycle_inside_a_subgraph_is_bounded_by_the_limits_around_it() -> None:
    inner = Graph(
        name="i", state=State, nodes={"a": think}, edges="START -> a -> a : error\na -> END", limits=Limits(steps=None)
    )
    for limits, verdict in ((Limits(), "proved"), (Limits(steps=None), "refuted")):
        found = next(
            proof for proof in proofs("START -> s -> END", limits, s=Subgraph(inner)) if proof.about == "bounded"
        )
        assert found.verdict == verdict
    assert path(found) == "START -> s/START -> s/a (error) -> s/a"


@tool(risk="read", effect="read")
def look() -> str:
    """Look."""
    return "seen"


def calling(*tools: Any) -> Node:
    @node(tools=tools)
    async def call(state: State, ctx: Context[Any]) -> None: ...

    return call


@pytest.mark.parametrize("tools", [(wipe,), (look, wipe)])
def test_a_function_that_is_given_tools_acts(tools: Any) -> None:
    way = "START -> think -> work"
    assert confirmed("START -> think -> work -> END", think=think, work=calling(*tools)) == [("refuted", way)]
    edges = "START -> sure\nsure -> work : approved\nsure -> END : denied\nwork -> END"
    assert confirmed(edges, sure=confirm, work=calling(*tools)) == [("proved", "")]


def test_a_function_with_the_name_of_a_tool_wants_it_declared() -> None:
    found = next(iter(proofs("START -> work -> END", work=calling("by_name"))))
    assert (found.verdict, found.reason) == ("undecided", "tool by_name is not declared: pass --tools")


@pytest.mark.parametrize("tools", [(), (look,)])
def test_a_function_whose_tools_change_nothing_needs_no_confirm(tools: Any) -> None:
    found = next(iter(proofs("START -> work -> END", work=calling(*tools))))
    assert (found.claim, found.verdict) == (NOTHING, "proved")


def test_a_kind_of_the_user_s_that_is_given_tools_acts_unless_it_says_otherwise() -> None:
    class Offers(Act):
        @property
        def calls_tools(self) -> bool:
            return False

    assert confirmed("START -> a -> END", a=Act().with_(tools=(wipe,))) == [("refuted", "START -> a")]
    assert confirmed("START -> a -> END", a=Offers().with_(tools=(wipe,))) == [("proved", "")]


def test_a_stored_function_keeps_its_claim() -> None:
    graph = Graph(name="g", state=State, nodes={"work": calling(wipe)}, edges="START -> work -> END")
    assert not Graph.from_data(graph.data()).check(prove=True, tools=[wipe]).proofs[0].holds


def test_code_that_may_call_any_tool_leaves_the_claim_undecided_unless_none_changes_anything() -> None:
    @node
    async def free(state: State, ctx: Context[Any]) -> None: ...

    @node
    def sync(state: State, ctx: Context[Any]) -> None: ...

    def verdicts(made: Node, tools: Any) -> list[tuple[str, str]]:
        graph = Graph(name="g", state=State, nodes={"a": made}, edges="START -> a -> END")
        found = graph.check(prove=True, tools=tools).proofs
        return [(proof.verdict, proof.reason) for proof in found if proof.about == "confirmed"]

    assert verdicts(free, None) == [("undecided", "it may call any tool: name its tools, tools=[...], or pass --tools")]
    assert verdicts(free, [wipe]) == [("undecided", "its code may call wipe (dangerous): name its tools, tools=[...]")]
    assert verdicts(free, [look]) == [("proved", "")]
    assert verdicts(sync, [wipe]) == [("proved", "")]  # a run refuses its calls


def written(edges: str, **nodes: Node) -> list[tuple[str, str, str]]:
    """Verdict of each claim about concurrent branches, and the paths of the two."""
    graph = Graph(name="g", state=State, nodes=nodes, edges=edges)
    found = [proof for proof in graph.check(prove=True).proofs if proof.about == "writes"]
    return [(proof.verdict, path(proof), " -> ".join(map(str, proof.beside))) for proof in found]


FORK = "START -> f -> a, b -> j -> END"
pure = Look(writes=frozenset())
writes_x = Look(writes=frozenset({"x"}))
together = pure.with_(join="all")


def test_two_branches_that_write_one_plain_field_are_shown() -> None:
    both = ("refuted", "START -> f -> a", "START -> f -> b")
    assert written(FORK, f=pure, a=writes_x, b=writes_x, j=together) == [both]
    assert written(FORK, f=writes_x, a=writes_x, b=pure, j=together.with_(writes={"x"})) == [("proved", "", "")]
    assert written("START -> f -> a : each xs\na -> j -> END", f=pure, a=writes_x, j=together) == [
        ("refuted", "START -> f -> a", "START -> f -> a")
    ]


def test_branches_of_which_one_drops_the_other_write_no_field_twice() -> None:
    race = pure.with_(join=1)
    assert written(FORK, f=pure, a=writes_x, b=writes_x, j=race) == [("proved", "", "")]
    edges = "START -> f -> a, b\na -> more\nmore, b -> j -> END"  # a may have written when b comes first
    assert written(edges, f=pure, a=writes_x, more=writes_x, b=writes_x, j=race)[0][0] == "proved"
    edges = "START -> f -> a, b\na -> a2 -> j\nb -> b2 -> j\nj -> END"
    assert written(edges, f=pure, a=writes_x, a2=pure, b=writes_x, b2=pure, j=race)[0][0] == "refuted"


def test_branches_that_a_stop_ends_are_not_concurrent_with_it() -> None:
    edges = "START -> f -> a, b\na -> STOP\nb -> STOP"
    assert written(edges, f=pure, a=writes_x, b=writes_x) == [("proved", "", "")]


def test_a_function_that_declares_no_writes_leaves_the_claim_undecided() -> None:
    @node
    def free(state: State) -> dict[str, object]:
        return {}

    @node
    def nothing(state: State) -> None: ...

    @node
    def typed(state: State) -> XUpdate:
        return XUpdate(x=1)

    assert written(FORK, f=pure, a=writes_x, b=free, j=together) == [
        ("undecided", "START -> f -> a", "START -> f -> b")
    ]
    assert written(FORK, f=pure, a=writes_x, b=nothing, j=together) == [("proved", "", "")]
    assert written(FORK, f=pure, a=writes_x, b=typed, j=together)[0][0] == "refuted"
    assert written("START -> a -> b -> END", a=free, b=free) == [("proved", "", "")]  # without branches


def inside(inner: Graph[Any], tools: Any) -> Graph[Any]:
    return Graph(name="g", state=CallState, nodes={"s": Subgraph(inner, tools=tools)}, edges="START -> s -> END")


def one(made: Node) -> Graph[Any]:
    return Graph(name="inner", state=CallState, nodes={"w": made}, edges="START -> w -> END")


def first(graph: Graph[Any], tools: Any) -> tuple[str, str]:
    proof = graph.check(prove=True, tools=tools).proofs[0]
    return proof.verdict, path(proof)


def test_the_tools_of_a_subgraph_are_those_of_the_nodes_inside_that_name_none() -> None:
    @node
    async def free(state: CallState, ctx: Context[Any]) -> None: ...

    there = "START -> s/START -> s/w"
    none: list[Any] = []
    for tools in (None, none):
        assert first(inside(one(Execute()), [wipe]), tools) == ("refuted", there)
        assert first(inside(one(free), [wipe]), tools) == ("undecided", there)
        assert first(inside(inside(one(Execute()), None), [wipe]), tools)[0] == "refuted"
    for made in (Execute(), free):
        assert first(inside(one(made), []), [wipe]) == ("proved", "")
        assert first(inside(one(made), [look]), [wipe]) == ("proved", "")
    assert first(inside(one(Execute().with_(tools=(look,))), [wipe]), []) == ("proved", "")
    assert first(inside(one(Execute().with_(tools=("wipe",))), [wipe]), []) == ("refuted", there)


def test_a_graph_in_two_nodes_is_refuted_only_where_it_gets_the_tool() -> None:
    inner = one(Execute())
    nodes = {"a": Subgraph(inner, tools=[look]), "b": Subgraph(inner, tools=[wipe])}
    graph = Graph(name="g", state=CallState, nodes=nodes, edges="START -> a -> b -> END")
    found = [proof for proof in graph.check(prove=True).proofs if proof.about == "confirmed"]
    assert [(proof.verdict, proof.witness[-1].node) for proof in found] == [("refuted", "b/w")]


class LocalCall(BaseModel):
    tool: Annotated[str, local] = "wipe"
    args: Annotated[dict[str, Any], local] = {}
    result: object = None


class MergedCall(BaseModel):
    tool: str = "wipe"
    args: Annotated[dict[str, Any], merge] = {}
    result: object = None


@pytest.mark.parametrize(("state", "verdict"), [(LocalCall, "refuted"), (MergedCall, "undecided")])
def test_an_approval_of_a_call_that_a_join_changes_does_not_hold_behind_it(state: Any, verdict: str) -> None:
    edges = """
        START -> a, b
        a -> c1
        b -> c2
        c1, c2 -> j : approved
        c1, c2 -> STOP : denied
        j -> END
    """
    nodes = {"a": Look(writes=frozenset({"args"})), "b": Look(writes=frozenset({"args"})), "c1": ask, "c2": ask}
    graph = Graph(name="g", state=state, nodes={**nodes, "j": Execute(join="all")}, edges=edges)
    proof = graph.check(prove=True, tools=[wipe]).proofs[0]
    assert (proof.verdict, proof.witness[-1].node) == (verdict, "j")


def test_an_approval_of_a_local_call_holds_behind_branches_that_do_not_write_it() -> None:
    edges = """
        START -> ask
        ask -> a, b : approved
        ask -> END : denied
        a, b -> j -> END
    """
    nodes = {"ask": ask, "a": pure, "b": pure, "j": Execute(join="all")}
    graph = Graph(name="g", state=LocalCall, nodes=nodes, edges=edges)
    assert first(graph, [wipe]) == ("proved", "")


class Lazy(Confirm):
    async def run(self, state: object, ctx: object) -> Outcome[str]:
        return Outcome("approved")


class Lax(Confirm):
    def asks_about(self, risk: Any) -> bool:
        return False


class Trusted(Lazy):
    @property
    def approves(self) -> Any:
        return super().approves


class Renamed(Confirm):
    prompt: str = "Sure?"


@pytest.mark.parametrize(("kind", "holds"), [(Lazy, False), (Lax, False), (Trusted, True), (Renamed, True)])
def test_a_class_that_replaces_what_a_confirmation_does_approves_only_what_it_says_itself(
    kind: type[Confirm], holds: bool
) -> None:
    edges = "START -> sure\nsure -> act : approved\nsure -> END : denied\nact -> END"
    graph = Graph(name="g", state=State, nodes={"sure": kind(), "act": act}, edges=edges)
    found = {proof.claim: proof for proof in graph.check(prove=True, tools=[]).proofs}
    assert found["every path to act passes a confirmation"].holds is holds


class Writing(Complete):
    async def run(self, state: object, ctx: object) -> Outcome[Literal["done"]]:
        return Outcome("done")


class Text(BaseModel):
    question: str = ""
    reply: str = ""


def test_a_class_that_replaces_the_work_of_a_shipped_kind_may_call_tools() -> None:
    for made, tools in ((Writing(prompt="x", result="reply"), [wipe]), (Complete(prompt="x", result="reply"), [wipe])):
        graph = Graph(name="g", state=Text, nodes={"a": made}, edges="START -> a -> END")
        assert first(graph, tools)[0] == ("undecided" if isinstance(made, Writing) else "proved")
        assert first(graph, [look])[0] == "proved"


@pytest.mark.parametrize(
    ("limits", "cache", "verdict"),
    [
        (Limits(steps=None, calls=3), None, "proved"),
        (Limits(steps=None, calls=3), 60, "refuted"),
        (Limits(steps=None, tokens=3), None, "refuted"),
        (Limits(steps=None, cost=3), None, "refuted"),
    ],
)
def test_a_cycle_is_bounded_by_calls_that_each_round_makes_and_not_by_usage_that_models_may_not_report(
    limits: Limits, cache: float | None, verdict: str
) -> None:
    complete = Complete(prompt="x", result="reply", reads=frozenset({"question"}), cache=cache)
    graph = Graph(name="g", state=Text, nodes={"a": complete}, edges="START -> a -> a\na -> END : error", limits=limits)
    found = next(proof for proof in graph.check(prove=True).proofs if proof.about == "bounded")
    assert found.verdict == verdict


class Other(Subgraph):
    def inner_input(self, state: object, item: object) -> dict[str, object]:
        return {"tool": "wipe", "args": {}}


@pytest.mark.parametrize(("kind", "verdict"), [(Subgraph, "proved"), (Other, "refuted")])
def test_an_approval_is_not_handed_to_a_graph_whose_input_a_class_of_the_user_s_makes(
    kind: type[Subgraph], verdict: str
) -> None:
    handed = kind(one(Execute()), inputs={"tool": "tool", "args": "args"})
    graph = Graph(name="g", state=CallState, nodes={"ask": ask, "execute": handed}, edges=CALL)
    assert first(graph, [wipe])[0] == verdict
