"""Swarm: agents share one conversation and hand it over to each other; the agent that has it answers.

START -> compact_first -> first -> first_read -> END                        : answer
                            ^ again |         -> first_act -> compact_first : calls
                            +-------+                      -> compact_second -> second -> second_read -> ...
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator import Graph, Limits, Retry, handoff
from orchestrator.graph import Migration, Node
from orchestrator.nodes import CallModel, CallProtocol, Compact, Confirm, Execute, Observe, ReadReply
from orchestrator.spelling import checks_names
from orchestrator.strategies.function_call import ContextPolicy, shortening
from orchestrator.strategies.router import own_names
from orchestrator.tools import Risk
from orchestrator.values import check_options

HAND_OVER = """\
You are {name}, one of several agents who share this conversation. Hand it over, with a message, if another one can go \
on better; else go on yourself. The agent that has the conversation answers the user."""


@dataclass(frozen=True)
class Member:
    """An agent of a swarm."""

    description: str
    """When the others should hand over to it."""
    system: str = ""
    """Its instructions."""
    tools: Sequence[object] = ()
    """Its tools: names of tools of the run, tools and functions."""
    model: str | None = None
    """Name of its model; None for that of the swarm."""


MEMBERS: Mapping[str, Member] = {
    "reception": Member("greetings, and all that no other agent is for", "You are the first whom users talk to."),
    "research": Member("questions about facts and figures, and calculations", "You find facts, and calculate."),
    "writing": Member("texts to write, translate or improve", "You write texts."),
}


class SwarmState(CallModel.State, ReadReply.State):
    """Inherits `question`, `messages`, `reply`, `corrections`, `pending` and `answer`."""


class LongSwarmState(SwarmState, Compact.State):
    """Inherits also `context_usage`, the size of the conversation."""


EDGES = """
    {one}      -> {one}_read
    {one}_read -> {one} : again
    {one}_read -> END   : answer
    {one}_read -> {act} : calls
    {one}_act  -> {entry}
"""
WITH_TOOLS = """
    {one}_act  -> ended : finished
"""
ENDED = """
    ended -> END : finished
    ended -> END : more
"""
CONFIRMED = """
    {one}_confirm -> {one}_act : approved
    {one}_confirm -> {entry}   : denied
"""


@checks_names
def swarm(
    members: Mapping[str, Member] | None = None,
    max_seconds: float | None = None,
    *,
    name: str = "swarm",
    first: str | None = None,
    tools: Collection[object] = (),
    model: str | None = None,
    confirm: Risk | None = "write",
    max_steps: int = 10,
    protocol: CallProtocol = "native",
    context: ContextPolicy = "compact",
    offload: int | None = 8_000,
) -> Graph:
    """Return the strategy as a graph, to run with a question, a model and tools. Its output is the answer, a text.

    After `max_steps` turns of one member the run ends as `exhausted`.

    Args:
        members: name -> an agent; None: `reception`, `research` and `writing`.
        max_seconds: seconds that the run may be alive; None for no limit.
        name: the graph's name.
        first: the member that gets the question; None for the first one.
        tools: tools of `research`, if `members` is None: names, tools and functions.
        model: name of one of the executor's models; None for the default one.
        confirm: ask before calls of tools of this risk or a higher one; None to ask about none.
        max_steps: the most turns of each member.
        protocol: the form of calls: the provider's own, or a form of text.
        context: what keeps the conversation within the window of the member's model, see `function_call_agent`.
        offload: number of characters of a result above which the model is shown its start and end, see `Execute`.

    Raises:
        ValueError: there are fewer than two members, one has the name of another node, `first` is none of them, or
            another option does not fit.
    """
    check_options("swarm", max_steps=max_steps, seconds=max_seconds, context=context)
    if max_steps < 1 or (max_seconds is not None and max_seconds <= 0):
        raise ValueError("swarm: max_steps must be at least 1, and max_seconds more than 0")
    if members is None:
        members = {
            **MEMBERS,
            "research": Member(MEMBERS["research"].description, MEMBERS["research"].system, (*tools,)),
        }
    start = next(iter(members), "") if first is None else first
    if len(members) < 2 or start not in members:
        raise ValueError(
            f"swarm: first={start!r} is one of at least two members; there are: {', '.join(members) or 'none'}"
        )
    parts = {f"{one}_{part}" for one in members for part in ("read", "confirm", "act")}
    parts |= {f"{part}_{one}" for one in members for part in ("compact", "clear")}
    own_names("swarm", members, {*parts, "ended"})
    other = next((one for one, member in members.items() if not isinstance(member, Member)), None)
    if other is not None:
        raise ValueError(f"swarm: member {other!r} is {members[other]!r:.60}: give a Member(description)")
    nodes: dict[str, Node] = {}
    entries = {one: next(iter(shortening(context, one, suffix=f"_{one}")[0]), one) for one in members}
    edges = f"    START -> {entries[start]}\n"
    for one, member in members.items():
        others = {other: handoff(other, theirs.description) for other, theirs in members.items() if other != one}
        options: dict[str, Any] = {"model": model, "confirm": confirm, "protocol": protocol}
        made, ways = _member(one, member, others, entries, context=context, offload=offload, **options)
        nodes |= made
        edges += ways
    if any(member.tools for member in members.values()):
        nodes["ended"] = Observe()
        edges += ENDED
    return Graph(
        name=name,
        description="Agents share a conversation and hand it over to each other.",
        state=SwarmState if context == "none" else LongSwarmState,
        input="question",
        nodes=nodes,
        edges=edges,
        output="answer",
        limits=Limits(
            # Five steps a turn, and those that shorten the conversation, also after three refused requests.
            steps=(5 if context == "none" else 20) * max_steps * len(members),
            visits=dict.fromkeys(members, max_steps),
            seconds=max_seconds,
        ),
        migrations=[Migration(accept=True)],  # runs from before `context` and `offload`
    )


def _member(
    one: str,
    member: Member,
    others: Mapping[str, Any],
    entries: Mapping[str, str],
    *,
    model: str | None,
    confirm: Risk | None,
    protocol: CallProtocol,
    context: ContextPolicy,
    offload: int | None,
) -> tuple[dict[str, Node], str]:
    """Return the nodes of a member, and their edges. `entries`: name of a member -> its first node."""
    offered = (*member.tools, *others.values())
    system = f"{HAND_OVER.format(name=one)} {member.system}".strip()
    asks = confirm is not None and bool(member.tools)
    act = f"{one}_confirm" if asks else f"{one}_act"
    shorten, when_long = shortening(context, one, suffix=f"_{one}")
    usage = "context_usage" if shorten else None
    nodes: dict[str, Node] = {
        one: CallModel(
            system=system,
            question="question",
            protocol=protocol,
            tools=offered,
            usage=usage,
            model=member.model or model,
            retry=Retry(),
        ),
        f"{one}_read": ReadReply(protocol=protocol, usage=usage),
        f"{one}_act": Execute(
            calls="pending",
            results="messages",
            chosen=tuple(others),
            on_failure="observe",
            tools=offered,
            offload=offload,
        ),
        **{name: shortener.with_(model=member.model or model) for name, shortener in shorten.items()},
    }
    edges = (EDGES + (WITH_TOOLS if member.tools else "")).format(one=one, act=act, entry=entries[one]) + when_long
    edges += "".join(f"    {one}_act -> {entries[other]} : {other}\n" for other in others)
    if asks:
        nodes[act] = Confirm(calls="pending", results="messages", from_risk=confirm, tools=offered)
        edges += CONFIRMED.format(one=one, entry=entries[one])
    return nodes, edges


graph = swarm()
