"""LLMCompiler (https://arxiv.org/abs/2312.04511): plan calls as tasks, make them in parallel, join, or plan again.

START -> plan -> read -> fill (each of the tasks) -> confirm -> execute -> record -> gather -> join -> decide -> END
         ^ again |       fill -> record : what needs no call                                            |
         +-------+                                                                                      |
         +------------------------------ learn <------------------------------ replan ------------------+
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel

from orchestrator import Graph, Limits, Outcome, Retry, Update, append, node, replace
from orchestrator.graph import Node
from orchestrator.nodes import Complete, Confirm, Constrain, Execute, Fill, Plan, ReadPlan, Record
from orchestrator.spelling import checks_names
from orchestrator.tools import Risk
from orchestrator.values import check_options

JOIN = """\
Question: {question}

These calls were made, and gave these results:
{log}

Decide whether the results are enough to answer the question. First write a thought, then one action, in two lines:
Thought: what the results tell
Action: Finish(the answer, as short as the question allows)
or, if further calls are needed:
Thought: what is missing
Action: Replan(what to do differently)"""
AGAIN = """\
{question}

Earlier calls did not give enough. Plan only what is still needed, with new numbers from 1; results of earlier calls \
can be written into the inputs as they are.
{learned}
Why: {reason}"""


class LlmCompilerState(Record.State, ReadPlan.State, Plan.BlueprintState, BaseModel):
    """Inherits `question`, `drafts`, `faults`, `steps` (the tasks), `evidence` (their results), and the fields of each
    branch.
    """

    task: str = ""
    """The question, after the first plan with what earlier plans found."""
    log: str = ""
    """The calls of the plan with their results."""
    learned: Annotated[list[str], append] = []
    """The same of earlier plans."""
    verdict: str = ""
    """The joiner's reply."""
    reason: str = ""
    """Why to plan again."""
    answer: str = ""


@node(effect="pure")
def ask(state: LlmCompilerState) -> Update:
    """Begin with the question alone."""
    return {"task": state.question}


@node(effect="pure", join="all")
def gather(state: LlmCompilerState) -> Outcome[Literal["done", "ended"]]:
    """Write the calls with their results, in the order of the plan; take `ended` if a call ended the work."""
    lines, answer = list[str](), None
    for call in state.steps:
        found = state.evidence.get(call.id)
        answer = found.text if found is not None and found.ended else answer
        shown = "no result" if found is None else f"Error: {found.text}" if found.failed else found.text
        asked = f"{call.tool}({call.input})" if call.tool else call.input
        for one in state.steps:  # a reference as the model wrote it; what only looks like one, such as a colour, stays
            asked = asked.replace(f"#{one.id}", f"${one.id[1:]}")
        lines.append(f"${call.id[1:]} = {asked} -> {shown}")
    update: dict[str, object] = {"log": "\n".join(lines)}
    return Outcome("done", update) if answer is None else Outcome("ended", {**update, "answer": answer})


@node(effect="pure")
def decide(state: LlmCompilerState) -> Outcome[Literal["finished", "replan"]]:
    """Read the joiner's reply."""
    action, words, thought = verdict_in(state.verdict)
    if action == "finish":
        return Outcome("finished", {"answer": words or thought})
    said = words or thought if action else f"its action cannot be read: {state.verdict[:200]!r}"
    return Outcome("replan", {"reason": said or "the results are not enough", "answer": thought})


@node(effect="pure")
def learn(state: LlmCompilerState) -> Update:
    """Add what was found to the question, and forget the plan."""
    results = "\n".join([*state.learned, state.log])
    task = AGAIN.format(question=state.question, learned=results, reason=state.reason)
    return {"task": task, "learned": state.log, "evidence": replace({}), "steps": []}


_THOUGHTS = re.compile(r"^.{0,100000}</think(?:ing)?>", re.DOTALL)
_fence = re.compile(r"```(?:json\b)?")
_MARKS = r"[ \t>*_`-]{0,8}(?:[0-9]{1,2}[.)][ \t*_`]{1,8})?"
_NAME = r"[\"'“*_`]{0,3}(?P<name>finish|re-?plan)\b[\"'”*_`]{0,3}[ \t]{0,4}"
_MARK = r"(?P<mark>[(\[:]|[-–—](?=\s)|[.!]?[\"'”*_`]{0,3}[ \t]{0,4}$)"
_LABEL = r"action[*_]{0,2}[ \t]{0,4}:"
_action = re.compile(rf"^{_MARKS}(?:{_LABEL}[\s*_]{{0,8}})?{_NAME}{_MARK}", re.IGNORECASE | re.MULTILINE)
"""An action at the start of a line."""
_later = re.compile(
    rf"\b{_LABEL}[ \t]{{0,4}}{_NAME}{_MARK}|(?<!\w)(?P<bare>finish(?=[(\[])|re-?plan\b){_MARK.replace('mark', 'sign')}",
    re.IGNORECASE,
)
"""An action within the last line: with its label, its brackets, or the word Replan at the end."""
_named = re.compile(rf"(?:^{_MARKS}|\b){_LABEL}|\bre-?plan\b", re.IGNORECASE | re.MULTILINE)
"""Words that name an action."""
_unsure = re.compile(
    r"\b(?:no|not|never|without|cannot|if|unless|whether|could|may|might|or)\b|n['’]t\b", re.IGNORECASE
)
_clause = re.compile(r"[.!?;:,]\s")
_thought = re.compile(rf"^{_MARKS}thought[*_]{{0,2}}[ \t]{{0,4}}:[*_ \t]{{0,4}}", re.IGNORECASE | re.MULTILINE)
_answer = re.compile(
    r"^[ \t>*_]{0,8}(?:final[ \t])?answer[*_]{0,2}[ \t]{0,4}:[*_ \t]{0,4}", re.IGNORECASE | re.MULTILINE
)
_WORDS = ("answer", "final answer", "input", "argument", "args", "arguments", "reason", "feedback")
"""Keys of an object with the words of an action."""


def verdict_in(reply: str) -> tuple[str, str, str]:
    """Return the action of a joiner's reply, its words, and the thought before it.

    The action is `finish` or `replan`, at the start of a line, within the last line, or in a JSON object; empty if an
    action is named that cannot be read. A reply without an action is an answer.
    """
    text = _fence.sub("", _THOUGHTS.sub("", reply)).partition("<END_OF_")[0].strip()
    if text.startswith("{"):
        text = _in_lines(text)
    begin, end, name, mark = _found(text)
    if not name:
        said = _answer.search(text)
        if said is None and _named.search(text, text.rfind("\n") + 1):
            return "", "", _bare_thought(text)
        return "finish", text[said.end() :].strip() if said else _bare_thought(text), ""
    rest = text[end:].strip().rstrip("`*").strip()
    if mark in ("(", "["):
        rest = _inside(rest, mark, ")" if mark == "(" else "]")
    if len(rest) > 1 and rest[0] in "\"'" and rest[-1] == rest[0]:
        rest = rest[1:-1]
    return "finish" if name == "finish" else "replan", rest.strip(), _bare_thought(text[:begin])


def _found(text: str) -> tuple[int, int, str, str]:
    """Return the start and the end of an action, its name and the mark after it; the name is empty if there is none."""
    found = _action.search(text)
    if found is not None:
        return found.start(), found.end(), found["name"].lower(), found["mark"]
    line = text.rfind("\n") + 1
    hits = [*_later.finditer(text, line)]
    if not hits or len({(hit["name"] or hit["bare"]).lower() for hit in hits}) > 1:
        return 0, 0, "", ""
    last = hits[-1]
    if last["name"]:
        return last.start(), last.end(), last["name"].lower(), last["mark"]
    clause = max((end.end() for end in _clause.finditer(text, line, last.start())), default=line)
    if _unsure.search(text, clause, last.start()):
        return 0, 0, "", ""
    alone = clause == last.start() or last["sign"][:1] in ("(", "[", ":")
    return last.start() if alone else len(text), last.end(), last["bare"].lower(), last["sign"]


def _in_lines(text: str) -> str:
    """Return a reply in JSON as the lines that were asked for; as it is if it is not a thought and an action."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    values = {name.casefold().replace("_", " "): value for name, value in given.items()}
    found = {name: one if isinstance(one, str) else json.dumps(one) for name, one in values.items()}
    words = next((found[name] for name in _WORDS if name in found), None)
    if "action" not in found:
        return text if words is None else f"Answer: {words}"
    thought = f"Thought: {found['thought']}\n" if found.get("thought") else ""
    return f"{thought}Action: {found['action']}" + ("" if words is None else f": {words}")


def _inside(text: str, opening: str, closing: str) -> str:
    """Return a text up to the bracket that closes it: the one that fits, else the last one, else all of it."""
    depth = 1
    for place, sign in enumerate(text):
        depth += (sign == opening) - (sign == closing)
        if not depth:
            return text[:place]
    return text.rpartition(closing)[0] or text


def _bare_thought(text: str) -> str:
    found = _thought.search(text)
    return (text[found.end() :] if found else text).strip()


EDGES = """
    START   -> ask -> plan -> read
    read    -> plan    : again
    read    -> fill    : each steps
    fill    -> record  : done
    execute -> record
    record  -> gather -> join -> decide
    gather  -> END     : ended
    decide  -> END     : finished
"""
PLANNED_AGAIN = """
    decide  -> learn   : replan
    learn   -> plan
"""
PLANNED_ONCE = """
    decide  -> END     : replan
"""
CONFIRMED = """
    fill    -> confirm : call
    confirm -> execute : approved
"""
UNCONFIRMED = """
    fill    -> execute : call
"""
WHEN_DENIED = """
    confirm -> record  : denied
"""


@checks_names
def llm_compiler(
    max_steps: int = 50,
    max_seconds: float | None = None,
    *,
    name: str = "llm_compiler",
    tools: Collection[object] | None = None,
    model: str | None = None,
    planner: str | None = None,
    joiner: str | None = None,
    confirm: Risk | None = "write",
    on_denied: Literal["raise", "observe"] = "observe",
    on_error: Literal["raise", "observe"] = "observe",
    max_plans: int = 3,
    constrain: Constrain = "auto",
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools. Its output is the answer, a text.

    Calls that do not need one another are made at the same time. When no plan is left, the run ends as `exhausted` with
    the joiner's last thought.

    Args:
        max_steps: the most calls of one plan to make; the evidence of all others is that no calls are left.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        tools: the only tools for the plan: names, tools, functions; None for all tools of the run.
        model: name of one of the executor's models; None for the default one.
        planner: name of the model that plans; None for that of `model`.
        joiner: name of the model that decides; None for that of `model`.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        on_denied: what happens if a call is denied: the run fails with `UserDenied`, or the joiner sees that.
        on_error: what happens if a call cannot be made: the run fails with `AgentError`, or the joiner sees the reason.
        max_plans: the most plans.
        constrain: `auto`: ask for plans by a JSON Schema, which many servers enforce. `never`: only in words, those of
            the paper.

    Raises:
        ValueError: `max_steps`, `max_plans` or `max_seconds` is not positive, or an option has another type or value.
    """
    given = {"on_denied": on_denied, "on_error": on_error, "constrain": constrain}
    check_options("llm_compiler", max_steps=max_steps, max_plans=max_plans, seconds=max_seconds, **given)
    if max_steps < 1 or max_plans < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("llm_compiler: max_steps and max_plans must be at least 1, and max_seconds more than 0")
    nodes: dict[str, Node] = {
        "ask": ask,
        "plan": Plan(
            form="tasks",
            question="task",
            drafts="drafts",
            faults="faults",
            constrain=constrain,
            model=planner or model,
            retry=Retry(),
        ),
        "read": ReadPlan(form="tasks"),
        "fill": Fill(steps="steps", max_calls=max_steps, on_error=on_error),
        "execute": Execute(on_error=on_error, on_failure="observe"),
        "record": Record(denial=None if confirm is None else "denial"),
        "gather": gather,
        "join": Complete(prompt=JOIN, result="verdict", on_cut="keep", model=joiner or model, retry=Retry()),
        "decide": decide,
        **({} if max_plans == 1 else {"learn": learn}),
    }
    edges = EDGES + (PLANNED_ONCE if max_plans == 1 else PLANNED_AGAIN)
    edges += UNCONFIRMED if confirm is None else CONFIRMED
    if confirm is not None:
        sure = Confirm(tool="tool", args="args", from_risk=confirm, reason="denial")
        nodes["confirm"] = sure if on_denied == "observe" else sure.with_(on_denied="raise", reason=None)
        edges += WHEN_DENIED if on_denied == "observe" else ""
    graph = Graph(
        name=name,
        description="Plan calls, make them in parallel, and answer from their results or plan again.",
        state=LlmCompilerState,
        input="question",
        nodes=nodes,
        edges=edges,
        output="answer",
        # A call takes four steps; the rest is for steps without a call, which take two, and for tools that are graphs.
        limits=Limits(
            seconds=max_seconds,
            steps=max_plans * (1000 + 4 * max_steps),
            visits={} if max_plans == 1 else {"learn": max_plans - 1},
        ),
    )
    return graph.with_tools(tools)


graph = llm_compiler()
