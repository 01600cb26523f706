"""A model without key or network, which does arithmetic with the tools that it is offered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, cast

from orchestrator.graph.limits import Usage
from orchestrator.models.base import ModelRequest, WordsModel
from orchestrator.models.messages import Message, Reply, ToolCall, is_summary
from orchestrator.models.offline.arithmetic import (
    NoArithmetic,
    Term,
    Unanswerable,
    first_operation,
    number_in,
    read,
    ready,
    shown,
    value_of,
    written,
)
from orchestrator.models.offline.planning import (
    Stuck,
    ToolOffer,
    after_call,
    after_steps,
    arguments,
    choose,
    line,
    missing,
    plan_calls,
    plan_code,
    plan_steps,
    solve,
)

__all__ = ["OfflineModel"]


_TRANSFER = "transfer_to_"
"""The beginning of the names of tools that hand a question over."""
_word = re.compile(r"\w+|[^\w\s]")


class OfflineModel(WordsModel):
    """Answers questions of arithmetic with the tools that it is offered, and replies to any others that it cannot.

    Among several choices it names the one with most words in common with the text, else the last one; to a question of
    yes or no it says no.

    It reads only the request: the kind of task, the tools, and the facts in `Message.data`, else the text of the user's
    last message; the wording of prompts makes no difference. Equal requests get equal replies. Fractions are exact in
    calculations, and written with 12 significant digits. Usage counts words.
    """

    name = "offline"

    def __repr__(self) -> str:
        return "OfflineModel()"

    async def respond(self, request: ModelRequest) -> Reply:
        """See `RequestModel.respond`."""
        try:
            text, calls = self._answer(request)
        except NoArithmetic as error:
            text, calls = str(error), ()
        given = sum(len(_word.findall(message.content)) for message in request.messages)
        made = len(_word.findall(text)) + sum(len(_word.findall(call.raw)) + 1 for call in calls)
        return Reply(
            text=text,
            tool_calls=tuple(calls),
            usage=Usage(input_tokens=given, output_tokens=made),
            finish="tool_calls" if calls else "stop",
            model=self.name,
        )

    def _answer(self, request: ModelRequest) -> tuple[str, Sequence[ToolCall]]:
        facts = _facts(request.messages)
        if request.task == "choose_tool":
            return _choose_tool(facts, request), ()
        if request.task == "choose_args":
            return _choose_args(facts), ()
        if request.task == "think":
            return _think(facts), ()
        if request.task == "plan":
            return _plan(facts, request), ()
        if request.task == "solve":
            return solve(facts), ()
        if request.task == "judge":
            return _judge(facts), ()
        if request.task == "replan":
            return _replan(facts), ()
        if request.task == "code":
            return _code(request), ()
        choices = facts.get("choices")
        if request.task in ("classify", "decide") and isinstance(choices, Mapping):
            return _choose(str(facts.get("text")), choices), ()
        if request.tools:
            return _call_tools(request)
        return _work_out(facts, request.output), ()


def _facts(messages: Sequence[Message]) -> Mapping[str, object]:
    """Return the facts of the last message that has any; else the user's last message as the question."""
    for message in reversed(messages):
        if is_summary(message):
            continue
        if message.data is not None and message.role != "tool":
            return {"question": message.content, **message.data}
        if message.role == "user":
            return {"question": message.content}
    return {"question": ""}


# -- deciding step by step ---------------------------------------------------------------------------------------


def _offered(facts: Mapping[str, Any], request: ModelRequest) -> list[ToolOffer]:
    """Return the tools in the facts, else those that can be called."""
    offered = facts.get("tools")
    if offered is None:
        return _offers(request)
    return [ToolOffer(one["name"], one.get("description") or "", one.get("parameters")) for one in offered]


def _begun(facts: Mapping[str, Any]) -> Term:
    """Return the term of the question, after the steps so far."""
    question = str(facts["question"])
    return after_steps(read(question), question, facts.get("steps") or (), related=True)


def _plan(facts: Mapping[str, object], request: ModelRequest) -> str:
    question = str(facts["question"])
    if facts.get("form") in ("blueprint", "tasks"):
        return plan_calls(question, _offered(facts, request))
    return plan_steps(question)


def _choose_tool(facts: Mapping[str, object], request: ModelRequest) -> str:
    offers = _offered(facts, request)
    term = read(str(facts["question"]))
    operation = first_operation(term)
    if operation is None:
        return f"No tool is needed: {written(term)} is a number already."
    found = choose(term, operation, offers)
    return missing(operation, offers) if found is None else found.name


def _choose_args(facts: Mapping[str, Any]) -> str:
    offer = ToolOffer(str(facts.get("tool", "")), str(facts.get("description") or ""), facts.get("parameters") or {})
    term = read(str(facts["question"]))
    operation = first_operation(term)
    if operation is None:
        return f"No tool is needed: {written(term)} is a number already."
    found = arguments(term, operation, offer)
    return missing(operation, [offer]) if found is None else json.dumps(found)


def _think(facts: Mapping[str, Any]) -> str:
    question = str(facts["question"])
    try:
        term = read(question)
    except NoArithmetic as nothing:
        return f"Final Answer: {nothing}"
    try:
        term = after_steps(term, question, facts.get("steps") or ())
    except Stuck as why:
        return f"Final Answer: {why}"
    operation = first_operation(term)
    if operation is None:
        return f"Final Answer: {shown(value_of(term))}"
    try:
        value_of(operation)
    except Unanswerable as none:
        return f"Final Answer: {none}"
    return f"Question: What is {written(operation)}?"


def _code(request: ModelRequest) -> str:
    """Return code that does all calls of a question at once; after it ran, the number that it printed."""
    asked = max(n for n, message in enumerate(request.messages) if "question" in (message.data or {}))
    last = request.messages[-1]
    if last.role == "user" and len(request.messages) > asked + 1:
        lines = last.content.strip().splitlines()
        found = number_in(lines[-1])
        return f"The code gave {line(last.content)}" if found is None else shown(found)
    question = str((request.messages[asked].data or {})["question"])
    offered = next((facts["functions"] for one in request.messages if "functions" in (facts := one.data or {})), [])
    offers = [ToolOffer(one["name"], one["description"], one["parameters"]) for one in cast(Any, offered)]
    if first_operation(read(question)) is None:
        return shown(value_of(read(question)))
    return plan_code(question, offers)


def _judge(facts: Mapping[str, Any]) -> str:
    """Return the highest scores for an answer that is right, else the lowest; it can only check arithmetic."""
    try:
        right = number_in(facts.get("answer")) == value_of(read(str(facts["question"])))
        feedback = "" if right else f"{line(facts.get('answer'))} is not the answer: calculate again."
    except (NoArithmetic, Unanswerable) as error:
        right, feedback = False, str(error)
    score = facts["highest"] if right else facts["lowest"]
    return json.dumps({"feedback": feedback, "scores": dict.fromkeys(facts["rubric"], score)})


def _replan(facts: Mapping[str, Any]) -> str:
    """Return the steps of a plan that have no result yet, or the last result as the answer."""
    steps, results = facts["steps"], facts["results"]
    left = steps[len(results) :]
    return json.dumps({"answer": "" if left else str(results[-1]), "steps": left})


def _choose(text: str, choices: Mapping[str, object]) -> str:
    if choices.keys() == {"yes", "no"}:
        return "no"
    words = _stems(text)
    return max(reversed([*choices]), key=lambda name: len(words & _stems(f"{name} {choices[name]}")))


def _stems(text: str) -> set[str]:
    """Return the beginnings of the longer words of a text."""
    return {word[:5] for word in _word.findall(text.casefold()) if len(word) > 3 or word.isdigit()}


# -- calling tools -----------------------------------------------------------------------------------------------


def _call_tools(request: ModelRequest) -> tuple[str, Sequence[ToolCall]]:
    """Return the next tool call, based on the conversation.

    With the option `parallel_tool_calls=True`, return all that can be made now.
    """
    start = max((n for n, message in enumerate(request.messages) if message.role == "user"), default=0)
    facts = _facts(request.messages[: start + 1])
    if "report" in facts:
        return str(facts["report"]), ()
    try:
        term = _begun(facts)
    except Stuck as why:
        return f"{why}.", ()
    made = {call.id: call for message in request.messages[start:] for call in message.tool_calls}
    for message in request.messages[start:]:
        if message.role != "tool" or (message.name or "").startswith(_TRANSFER):
            continue
        call = made.get(message.tool_call_id or "")
        error, output = _outcome(message)
        name = call.name if call is not None else "a tool"
        if error is not None:
            return f"I cannot work out {written(term)}: {name} failed: {line(error)}", ()
        found = number_in(output)
        if found is None:
            return f"I cannot continue with {written(term)}: {name} said {line(output)}, which is not one number.", ()
        term = after_call(term, call, found)
    if first_operation(term) is None:
        return shown(value_of(term)), ()
    operations = list(ready(term))
    try:
        value_of(operations[0])
    except Unanswerable as none:
        return f"{none}.", ()
    if request.options.get("parallel_tool_calls") is not True:
        operations = operations[:1]
    offers = _offers(request)
    taken = {call.id for message in request.messages for call in message.tool_calls}
    calls: list[ToolCall] = []
    for operation in operations:
        offer = choose(term, operation, offers)
        given = arguments(term, operation, offer) if offer is not None else None
        if offer is None or given is None:
            if not calls:
                return _handed_over(request, start, facts) or (missing(operation, offers), ())
            break
        same = [call for call in calls if call.name == offer.name and call.arguments == given]
        if not same:
            calls.append(ToolCall(id=_fresh(taken), name=offer.name, arguments=given, raw=json.dumps(given)))
    parts = " and ".join(written(operation) for operation in operations[: len(calls)])
    return f"To work out {written(term)} I need {parts}.", calls


def _handed_over(request: ModelRequest, start: int, facts: Mapping[str, Any]) -> tuple[str, Sequence[ToolCall]] | None:
    """Return the call that hands a question over, which no tool at hand answers; once, then it is worked out.

    None if there is no agent to hand over to.
    """
    others = [offer for offer in _offers(request) if offer.name.startswith(_TRANSFER)]
    if not others:
        return None
    handed = any((message.name or "").startswith(_TRANSFER) for message in request.messages[start:])
    if handed:
        return _work_out(facts, None), ()
    name = _choose(str(facts["question"]), {offer.name: offer.description for offer in others[::-1]})
    given = {"message": str(facts["question"])}
    taken = {call.id for message in request.messages for call in message.tool_calls}
    return "Another one can do this.", [ToolCall(id=_fresh(taken), name=name, arguments=given, raw=json.dumps(given))]


def _outcome(message: Message) -> tuple[object | None, object]:
    """Return a tool message's error, if it is one, and its output."""
    facts = message.data or {}
    if facts.get("error") is not None or facts.get("exit_code"):
        return facts.get("error") or message.content, None
    if "output" in facts:
        return None, facts["output"]
    if message.content.lstrip().lower().startswith("error"):
        return message.content, None
    try:
        return None, json.loads(message.content)
    except ValueError:
        return None, message.content


def _fresh(taken: set[str]) -> str:
    """Return an id that no call of the conversation has; the same one for the same conversation."""
    number = len(taken) + 1
    while f"call_{number}" in taken:
        number += 1
    taken.add(f"call_{number}")
    return f"call_{number}"


def _offers(request: ModelRequest) -> list[ToolOffer]:
    functions: list[Any] = [tool.get("function") or {} for tool in request.tools]
    return [
        ToolOffer(str(f.get("name")), str(f.get("description") or ""), f.get("parameters") or {}) for f in functions
    ]


# -- answering at once -------------------------------------------------------------------------------------------


def _work_out(facts: Mapping[str, object], output: Mapping[str, object] | None) -> str:
    try:
        answer = value_of(_begun(facts))
    except (Unanswerable, Stuck) as error:
        return f"{error}."
    if output is None:
        return shown(answer)
    filled = _fill(output, answer)
    if filled is None:
        raise NoArithmetic("I only do arithmetic: I can fill in a number or a text, and this form asks for more.")
    return json.dumps(filled)


def _fill(schema: Mapping[str, Any], answer: Fraction) -> object | None:
    """Return the answer in the requested form; None if its place in the form is unclear."""
    kind = schema.get("type")
    whole = answer.denominator == 1
    if kind == "object":
        properties: Mapping[str, Any] = schema.get("properties") or {}
        filled = {
            name: _fill(properties[name], answer) for name in schema.get("required") or properties if name in properties
        }
        return filled if filled and None not in filled.values() else None
    if kind == "array":
        item = _fill(schema.get("items") or {}, answer)
        return None if item is None else [item]
    if kind == "integer":
        return answer.numerator if whole else None
    if kind == "number":
        return answer.numerator if whole else float(answer)
    return shown(answer) if kind == "string" and "enum" not in schema else None
