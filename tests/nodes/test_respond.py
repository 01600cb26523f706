"""`Respond`: a model goes on with a conversation, in whatever form it calls tools."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from orchestrator import Graph, Message, Run, ToolCall, append, tool
from orchestrator.models import Reply, assistant, system, tool_result, user
from orchestrator.models.base import ModelRequest
from orchestrator.nodes import Respond
from orchestrator.nodes.conversation import trimmed
from orchestrator.nodes.respond import CUT, answer_in, thought_in
from orchestrator.testing import ScriptedModel
from tests.support.one_node import error_of, executing

pytestmark = pytest.mark.anyio


@tool(risk="none", effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(risk="none", effect="read")
def search(query: str) -> str:
    """Search."""
    return f"about {query}"


ADD = ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2})
FIND = ToolCall(id="c2", name="search", arguments={"query": "Bonn"})


def calling(*calls: ToolCall, text: str = "", **extras: Any) -> Reply:
    return Reply(text=text, tool_calls=calls, finish="tool_calls", extras=extras)


async def responded(
    replies: Sequence[Any], it: Respond | None = None, given: Any = None, state: type[BaseModel] = Respond.State
) -> tuple[Run, ScriptedModel, str]:
    it = it or Respond(question="question")
    edges = "START -> it\n" + "\n".join(f"it -> END : {outcome}" for outcome in it.outcomes)
    graph = Graph(name="g", state=state, nodes={"it": it}, edges=edges)
    async with executing(replies, (add, search)) as (executor, model):
        run = await executor.start(graph, {"question": "What is 1 + 2?", **(given or {})})
        points = await executor.history(run.run_id)
    return run, model, points[-1].outcome if points else ""


def said(run: Run) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in run.values["messages"]]


def shown(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in request.messages]


# -- one reply -----------------------------------------------------------------------------------------------------


async def test_a_text_is_the_answer() -> None:
    run, model, outcome = await responded(["It is 3."], Respond(question="question", system="Be brief.", task="t"))
    assert (outcome, run.values["answer"], run.values["pending"]) == ("answer", "It is 3.", [])
    assert said(run) == [("user", "What is 1 + 2?"), ("assistant", "It is 3.")]
    (request,) = model.requests
    assert shown(request) == [("system", "Be brief."), ("user", "What is 1 + 2?")]
    assert (request.task, [one["function"]["name"] for one in request.tools]) == ("t", ["add", "search"])  # type: ignore[index, call-overload]


async def test_calls_are_written_and_the_answer_is_not() -> None:
    run, _, outcome = await responded([calling(ADD, FIND, text="Both.", reasoning_content="hm")])
    assert (outcome, run.values["answer"]) == ("calls", "")
    assert [call["id"] for call in run.values["pending"]] == ["c1", "c2"]
    last = Message.model_validate(run.values["messages"][-1])
    assert (last.content, last.tool_calls, last.extras) == ("Both.", (ADD, FIND), {"reasoning_content": "hm"})


async def test_the_question_is_put_when_it_is_the_users_turn() -> None:
    prompt = Respond(question="question", prompt="Question: {question}")
    turns: list[tuple[list[Message], bool]] = [
        ([], True),
        ([system("You are kind.")], True),
        ([user("Hi"), assistant("Hello")], True),
        ([user("Hi")], False),
        ([user("Hi"), assistant("", [ADD]), tool_result(ADD, "3")], False),
    ]
    for talk, theirs in turns:
        run, _, _ = await responded(["ok"], prompt, {"messages": talk})
        added = said(run)[len(talk) : -1]
        assert added == ([("user", "Question: What is 1 + 2?")] if theirs else [])
        if theirs:
            assert run.values["messages"][len(talk)]["data"] == {"question": "What is 1 + 2?"}
    run, _, _ = await responded(["ok"], prompt, {"question": "", "messages": [user("Hi")]})
    assert said(run) == [("user", "Hi"), ("assistant", "ok")]


@pytest.mark.parametrize("talk", [[], [system("You are kind.")]])
async def test_where_nothing_is_asked_no_request_is_made(talk: list[Message]) -> None:
    run, model, _ = await responded([], None, {"question": " ", "messages": talk})
    assert error_of(run) == (
        "AgentError",
        "respond: there is nothing to answer: the question is empty, and so is the conversation",
    )
    assert model.requests == []


class Plain(BaseModel):
    question: str = "Why?"
    talk: list[Message] = [user("Hi"), assistant("Hello")]
    calls: list[ToolCall] = [ADD]
    out: str | None = None


async def test_ports_can_be_renamed_and_a_plain_list_loses_nothing() -> None:
    it = Respond(question="question", messages="talk", calls="calls", answer="out")
    run, _, _ = await responded(["Because."], it, {"question": "Why?"}, Plain)
    assert [message["content"] for message in run.values["talk"]] == ["Hi", "Hello", "Why?", "Because."]
    assert (run.values["out"], run.values["calls"]) == ("Because.", [])


async def test_calls_of_one_reply_have_ids_of_their_own() -> None:
    same = ToolCall(id="", name="add", arguments={})
    run, _, _ = await responded([calling(ADD, ADD, same, same)])
    ids = [call["id"] for call in run.values["pending"]]
    assert ids[0] == "c1"
    assert len(set(ids)) == 4
    assert [call["id"] for call in run.values["messages"][-1]["tool_calls"]] == ids


@pytest.mark.parametrize(
    ("ids", "distinct"),
    [
        (["a-2", "a", "a"], ["a-2", "a", "a-1"]),
        (["a", "a", "a-1"], ["a", "a-2", "a-1"]),
        (["", "call-1", ""], ["call-2", "call-1", "call-3"]),
    ],
)
async def test_ids_are_made_distinct_also_from_those_that_look_made(ids: list[str], distinct: list[str]) -> None:
    run, _, _ = await responded([calling(*(ADD.model_copy(update={"id": one}) for one in ids))])
    assert [call["id"] for call in run.values["pending"]] == distinct


async def test_an_id_that_was_not_given_is_not_given_twice_in_a_conversation() -> None:
    earlier = ToolCall(id="call-1", name="add", arguments={})
    talk = [user("Hi"), assistant("", [earlier]), tool_result(earlier, "3")]
    run, _, _ = await responded([calling(ADD.model_copy(update={"id": ""}))], None, {"messages": talk})
    assert [call["id"] for call in run.values["pending"]] == ["call-2"]


async def test_a_call_without_a_name_is_no_answer() -> None:
    nameless = ToolCall(id="n", name="", arguments={"a": "x"})
    run, _, outcome = await responded([calling(nameless)])
    assert (outcome, [call["id"] for call in run.values["pending"]]) == ("calls", ["n"])
    run, _, outcome = await responded([calling(ADD, nameless)])
    assert [call["id"] for call in run.values["pending"]] == ["c1", "n"]


@pytest.mark.parametrize("told", [None, True, False])
async def test_a_model_is_told_whether_to_call_several_at_once_only_where_asked_for(told: bool | None) -> None:
    _, model, _ = await responded(["3"], Respond(question="question", parallel_tool_calls=told))
    assert model.requests[0].options == ({} if told is None else {"parallel_tool_calls": told})


async def test_a_refused_reply_is_an_error() -> None:
    run, _, _ = await responded([Reply(text="No.", finish="refusal")])
    kind, message = error_of(run)
    assert (kind, "refused to answer (refusal): 'No.'" in message) == ("AgentError", True)


LONG = Reply(text="It is 3, since 3 = 3 =", finish="length")


async def test_a_reply_that_was_cut_is_asked_for_again_more_briefly() -> None:
    run, model, outcome = await responded([LONG, "It is 3."])
    assert (outcome, run.values["answer"]) == ("answer", "It is 3.")
    assert shown(model.requests[1])[1:] == [("assistant", LONG.text), ("user", CUT)]
    assert said(run) == [("user", "What is 1 + 2?"), ("assistant", "It is 3.")]


@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize("protocol", ["native", "bracket"])
async def test_prose_that_is_cut_each_time_is_the_answer_as_far_as_it_goes(protocol: Any, offered: bool) -> None:
    it = Respond(question="question", protocol=protocol, tools_offered=offered, finish="Finish" if offered else "")
    run, model, outcome = await responded([LONG, LONG], it)
    assert (outcome, run.values["answer"], len(model.requests)) == ("answer", LONG.text, 2)


@pytest.mark.parametrize(
    ("reply", "it"),
    [
        (Reply(text="", finish="length"), None),
        (calling(ADD).model_copy(update={"finish": "length"}), None),
        (Reply(text="Action: search[Bo", finish="length"), Respond(question="question", protocol="bracket")),
    ],
    ids=["nothing", "a call", "half an action"],
)
async def test_nothing_and_half_a_call_are_no_answer(reply: Reply, it: Respond | None) -> None:
    run, model, _ = await responded([reply, reply], it)
    assert error_of(run)[0] == "AgentError"
    assert "give the model more max_tokens" in error_of(run)[1]
    assert len(model.requests) == 2
    run, _, outcome = await responded([reply, "It is 3."], it)
    assert (outcome, run.values["answer"], run.values["pending"]) == ("answer", "It is 3.", [])


async def test_an_action_before_the_cut_is_made() -> None:
    text = "Thought: I search.\nAction: search[Bonn]\nObservation: a town\nThought: Now I know that"
    run, _, outcome = await responded([Reply(text=text, finish="length")], BRACKET)
    assert (outcome, [call["arguments"] for call in run.values["pending"]]) == ("calls", [{"query": "Bonn"}])


async def test_a_thought_alone_is_the_answer_in_the_end_where_calls_need_no_words() -> None:
    it = Respond(question="question", thought="required")
    run, model, outcome = await responded(["Thought: It should be 3."] * 2, it)
    assert (outcome, run.values["answer"], len(model.requests)) == ("answer", "It should be 3.", 2)


# -- replies that cannot be used -----------------------------------------------------------------------------------


async def test_an_empty_reply_is_asked_for_again_within_bounds() -> None:
    run, model, _ = await responded(["  ", "3"])
    assert (run.values["answer"], said(run)) == ("3", [("user", "What is 1 + 2?"), ("assistant", "3")])
    assert shown(model.requests[1])[1:] == [
        ("assistant", "  "),
        ("user", "Your reply was empty. Call a tool, or give the final answer."),
    ]
    run, _, _ = await responded(["", "", ""], Respond(question="question", retries=2))
    assert error_of(run)[0] == "AgentError"
    run, _, _ = await responded([""], Respond(question="question", retries=0))
    assert error_of(run)[0] == "AgentError"


async def test_a_thought_is_asked_for_once_where_it_is_required() -> None:
    it = Respond(question="question", thought="required")
    run, model, outcome = await responded([calling(ADD), calling(ADD, text="I add.")], it)
    assert (outcome, said(run)[-1]) == ("calls", ("assistant", "I add."))
    correction = model.requests[1].messages[-1]
    assert (correction.role, correction.tool_call_id) == ("tool", "c1")
    assert "first say in a sentence what you think" in correction.content
    run, _, _ = await responded([calling(ADD), calling(ADD, text="Thought 2: ")], it)
    assert error_of(run)[0] == "AgentError"
    run, _, outcome = await responded([calling(ADD, reasoning_content="I add.")], it)
    assert outcome == "calls"
    run, _, outcome = await responded([calling(ADD)], Respond(question="question"))
    assert outcome == "calls"


async def test_who_can_only_answer_is_offered_nothing_and_calls_nothing() -> None:
    it = Respond(question="question", tools_offered=False)
    assert it.outcomes == ("answer",)
    run, model, _ = await responded([calling(ADD), "3"], it)
    assert (run.values["answer"], model.requests[0].tools) == ("3", ())
    assert "no tool can be called any more" in model.requests[1].messages[-1].content
    run, _, _ = await responded([calling(ADD, text="It is 3.")], it)
    assert (run.values["answer"], run.values["messages"][-1]["tool_calls"]) == ("It is 3.", [])


async def test_who_can_only_answer_may_do_so_by_the_last_action() -> None:
    done = ToolCall(id="f", name="Finish", arguments={"answer": "3"})
    it = Respond(question="question", tools_offered=False, finish="Finish")
    run, model, _ = await responded([calling(ADD, done, text="I know.")], it)
    assert (run.values["answer"], [one["function"]["name"] for one in model.requests[0].tools]) == ("3", ["Finish"])  # type: ignore[index, call-overload]


async def test_who_can_only_answer_has_said_something_when_the_retries_are_spent() -> None:
    it = Respond(question="question", tools_offered=False, finish="Finish", protocol="bracket", retries=1)
    run, _, _ = await responded(["Thought: hm", "Thought 2: It may be 3."], it)
    assert run.values["answer"] == "It may be 3."
    run, _, _ = await responded(["", ""], it)
    assert error_of(run)[0] == "AgentError"


# -- an action that ends the work ----------------------------------------------------------------------------------


async def test_the_answer_may_be_an_action() -> None:
    it = Respond(question="question", finish="Finish")
    done = ToolCall(id="f", name="Finish", arguments={"answer": "3"})
    run, model, outcome = await responded([calling(done, text="I know.")], it)
    assert (outcome, run.values["answer"]) == ("answer", "3")
    assert said(run)[-1] == ("assistant", "I know.\n\n3")
    assert run.values["messages"][-1]["tool_calls"] == []
    assert [one["function"]["name"] for one in model.requests[0].tools] == ["add", "search", "Finish"]  # type: ignore[index, call-overload]
    run, _, outcome = await responded([calling(ADD, done)], it)
    assert (outcome, [call["name"] for call in run.values["pending"]]) == ("calls", ["add"])
    wrong = done.model_copy(update={"arguments": {}})
    run, model, outcome = await responded([calling(wrong), calling(done)], it)
    assert (outcome, "takes the answer" in model.requests[1].messages[-1].content) == ("answer", True)
    run, _, _ = await responded([], Respond(question="question", finish="add"))
    assert "a tool is named 'add'" in error_of(run)[1]


# -- calls as text -------------------------------------------------------------------------------------------------

BRACKET = Respond(question="question", protocol="bracket", finish="Finish", thought="required", retries=1)


@pytest.mark.parametrize(
    ("text", "thought", "tool_name", "args"),
    [
        ('Thought: I add.\nAction: add[{"a": 1, "b": 2}]', "Thought: I add.", "add", {"a": 1, "b": 2}),
        ("Thought 1: I look.\nAction 1: search[Bonn]", "Thought 1: I look.", "search", {"query": "Bonn"}),
        ("I look.\nAction: search[Bonn]", "I look.", "search", {"query": "Bonn"}),
        ("Thought: x\nAction: search[a [b] c]", "Thought: x", "search", {"query": "a [b] c"}),
        ("Thought: x\nAction: search\nAction Input: Bonn", "Thought: x", "search", {"query": "Bonn"}),
        ("Thought: x\nAction: add[1, 2]", "Thought: x", "add", {"a": 1, "b": 2}),
        ("Thought: x\nAction: lookup[Bonn, now]", "Thought: x", "lookup", {"input": "Bonn, now"}),
        (
            "Thought: x\nAction: search[Bonn]\nObservation: It is big.\nThought: y\nAction: search[Ulm]",
            "Thought: x",
            "search",
            {"query": "Bonn"},
        ),
    ],
)
async def test_an_action_in_words(text: str, thought: str, tool_name: str, args: dict[str, Any]) -> None:
    run, _, outcome = await responded([text], BRACKET)
    (call,) = run.values["pending"]
    assert (outcome, call["name"], call["arguments"]) == ("calls", tool_name, args)
    assert len(call["id"]) == 32
    assert said(run)[-1] == ("assistant", thought)


@pytest.mark.parametrize(
    ("text", "answer", "content"),
    [
        ("Thought 3: I know.\nAction 3: Finish[It is 3.]", "It is 3.", "I know.\n\nIt is 3."),
        ("Thought: I know.\nAction: finish[a [b] c]", "a [b] c", "I know.\n\na [b] c"),
        ("Thought: I know.\nFinish[3]", "3", "I know.\n\n3"),
        ("Finish[3].", "3", "3"),
        ("Thought: I know.\nFinal Answer: 3\nand no more", "3\nand no more", "I know.\n\n3\nand no more"),
        ("**Thought:** I know.\n**Answer:** 3", "3", "I know.\n\n3"),
        ("Final Answer: 3", "3", "3"),
        ("Answer: It is 3.", "Answer: It is 3.", "Answer: It is 3."),
        ("It is 3.", "It is 3.", "It is 3."),
    ],
)
async def test_an_answer_in_words(text: str, answer: str, content: str) -> None:
    run, _, outcome = await responded([text], BRACKET)
    assert (outcome, run.values["answer"], said(run)[-1]) == ("answer", answer, ("assistant", content))


@pytest.mark.parametrize(
    ("text", "why", "reported"),
    [
        ("Thought: I have to add.", "That is a thought, and no more", "is a thought, without a call or an answer"),
        (
            "Thought: x\nAction: look up Bonn\nObservation: 3\nFinal Answer: 3",
            "an action without [input]",
            "has a call that cannot be read: an action without [input]",
        ),
        (
            "Thought: x\nAction: search[Bonn",
            "a bracket that is not closed",
            "has a call that cannot be read: a bracket",
        ),
        ("Thought: x\nAction:", "an action that names no tool", "has a call that cannot be read: an action that names"),
        ("Action: search[Bonn]", "first say in a sentence what you think", "makes a call without a thought"),
        ("Thought: x\nAction: Finish[]", "takes the answer", "cannot be used: Finish takes the answer"),
        (" ", "Your reply was empty.", "respond: the model's reply is empty"),
    ],
)
async def test_an_action_that_cannot_be_taken_is_observed_within_bounds(text: str, why: str, reported: str) -> None:
    """A person reads what the reply is, the model what to do."""
    run, model, outcome = await responded([text, "Thought: x\nAction: search[Bonn]"], BRACKET)
    assert outcome == "calls"
    assert why in model.requests[1].messages[-1].content
    assert [role for role, _ in said(run)] == ["user", "assistant"]
    run, _, _ = await responded([text, text], BRACKET)
    kind, message = error_of(run)
    assert (kind, reported in message, "Your reply" in message) == ("AgentError", True, False), message


async def test_a_thought_that_came_alone_is_that_of_the_action_after_it() -> None:
    alone = "Thought 1: I need to search x."
    run, model, outcome = await responded([alone, "Action 1: search[x]"], BRACKET)
    assert (outcome, said(run)[-1]) == ("calls", ("assistant", alone))
    assert "That is a thought, and no more" in model.requests[1].messages[-1].content
    run, _, _ = await responded([alone, "Thought 1: hm\nAction 1: search[x]"], BRACKET)
    assert said(run)[-1] == ("assistant", "Thought 1: hm")
    run, _, _ = await responded(["Thought 1:", "Action 1: search[x]"], BRACKET)
    assert error_of(run)[0] == "AgentError"


async def test_a_block_of_thoughts_is_a_thought_and_no_part_of_the_answer() -> None:
    block = "<think>\nAction: add[1, 2]\n</think>\n\n"
    for it in (None, BRACKET, Respond(question="question", tools_offered=False)):
        run, _, outcome = await responded([block + "It is 3."], it)
        assert (outcome, run.values["answer"], said(run)[-1][1]) == ("answer", "It is 3.", "It is 3.")
    run, _, outcome = await responded([block + "Action: search[x]"], BRACKET)
    assert (outcome, said(run)[-1][1]) == ("calls", "")
    assert [call["name"] for call in run.values["pending"]] == ["search"]
    run, model, _ = await responded([block, "3"])
    assert (run.values["answer"], "was empty" in model.requests[1].messages[-1].content) == ("3", True)
    run, _, _ = await responded([calling(ADD, text="<think> </think>")] * 2, BRACKET)
    assert error_of(run)[0] == "AgentError"


async def test_who_can_only_answer_cannot_act_in_words() -> None:
    it = BRACKET.with_(tools_offered=False)
    run, model, _ = await responded(["I look.\nAction: search[x]", "Thought: x\nAction: Finish[3]"], it)
    assert (run.values["answer"], "'search' was not offered" in model.requests[1].messages[-1].content) == ("3", True)


@pytest.mark.parametrize("text", ["Thought: is what comes first.", "Final Answer: 3", "Action: add[1]"])
async def test_words_are_read_as_labels_only_where_they_are_asked_for(text: str) -> None:
    run, _, outcome = await responded([text])
    assert (outcome, run.values["answer"]) == ("answer", text)


FORMS: list[tuple[Literal["json", "plugin", "separator"], str]] = [
    ("json", '{"name": "search", "arguments": {"query": "Bonn"}}'),
    ("plugin", '<|action_start|><|plugin|>\n{"name": "search", "parameters": {"query": "Bonn"}}<|action_end|>'),
    ("separator", 'I look.<|tool_calls|>[{"name": "search", "arguments": {"query": "Bonn"}}]'),
]


@pytest.mark.parametrize(("form", "text"), FORMS)
async def test_other_forms_and_words_of_ones_own(form: Literal["json", "plugin", "separator"], text: str) -> None:
    it = Respond(question="question", protocol=form, tools_prompt="MY TOOLS {tools} {how}")
    run, model, outcome = await responded([text], it)
    assert (outcome, run.values["pending"][0]["arguments"]) == ("calls", {"query": "Bonn"})
    assert model.requests[0].tools == ()
    assert "MY TOOLS" in model.requests[0].messages[0].content


# -- labels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "thought"),
    [("Thought: a: b", "a: b"), (" thought 12 : x\ny", "x\ny"), ("**Thought:** x", "x"), ("Thought:", ""), ("x", "x")],
)
def test_a_thought_without_its_label(text: str, thought: str) -> None:
    assert thought_in(text) == thought


def test_labels_take_time_in_proportion() -> None:
    for text in ("Thought: " * 20_000, "Answer" * 20_000, " " * 100_000 + "x", "Finish[" * 20_000, "**" * 50_000):
        answer_in(text, "Finish")
        thought_in(text)


# -- long conversations --------------------------------------------------------------------------------------------


def turns(count: int) -> list[Message]:
    talk: list[Message] = [system("S")]
    for n in range(count):
        calls = [ToolCall(id=f"{n}{i}", name="add", arguments={}) for i in (1, 2)]
        talk += [user(f"q{n}"), assistant("", calls), *(tool_result(call, "3") for call in calls), assistant(f"a{n}")]
    return talk


@pytest.mark.parametrize("keep", range(1, 18))
def test_a_cut_never_parts_a_call_from_its_results(keep: int) -> None:
    talk = turns(3)[: -1 if keep % 2 else None]
    kept = trimmed(talk, keep)
    assert kept[0] == talk[0]
    assert kept[1].content == "q0"
    assert any(message.content == "q2" for message in kept)
    assert kept[-1] == talk[-1]
    places = [talk.index(message) for message in kept]
    assert places == sorted(places)
    assert len(kept) >= min(keep, len(talk))
    made = [call.id for message in kept for call in message.tool_calls]
    assert made == [message.tool_call_id for message in kept if message.role == "tool"]


def test_a_short_conversation_and_one_without_bound_stay_whole() -> None:
    assert trimmed(turns(3), None) == trimmed(turns(3), 99) == turns(3)


@pytest.mark.parametrize("keep", range(1, 24))
def test_no_question_stands_before_the_answer_to_another_one(keep: int) -> None:
    kept = [message.content for message in trimmed([*turns(5), user("q5")], keep) if message.content[:1] in "qa"]
    said = [text for text in kept if text]
    assert said[-1] == "q5"
    for before, text in pairwise(said):
        if text[0] == "a":
            assert before == "q" + text[1:]
    assert said[:2] == ["q0", "a0"]


class Talk(Respond.State):
    messages: Annotated[list[Message], append] = turns(9)


async def test_what_is_cut_is_cut_from_the_request_only() -> None:
    run, model, _ = await responded(["ok"], Respond(question="question", system="Be brief.", keep=3), state=Talk)
    assert [text for _, text in shown(model.requests[0])][:3] == ["Be brief.", "S", "q0"]
    assert len(model.requests[0].messages) == 10
    assert len(run.values["messages"]) == len(turns(9)) + 2
