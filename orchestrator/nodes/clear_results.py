"""Replace old results of tools by one line each, so that a conversation fits the model's context window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt

from orchestrator.context import Context
from orchestrator.errors import RequestTooLong, StepError
from orchestrator.graph.model import Effect, Node, Port
from orchestrator.graph.outcome import DONE, TOO_LONG, Failing, Outcome
from orchestrator.graph.reducers import append
from orchestrator.models.messages import Message
from orchestrator.models.prices import tokens_of
from orchestrator.nodes.compact import TOO_LONG as WHAT_TO_DO
from orchestrator.nodes.compact import is_pinned, replaced_by
from orchestrator.nodes.window import GAIN, ContextUsage, rounds
from orchestrator.tools.stored_results import OFFLOADED, reads

CLEARED = "cleared"
"""Key in the data of a result that was replaced by a line: the number of its characters."""


class ClearResults(Node, kind="clear_results"):
    """Replace old results of tools by one line each, which says what was there. No model is asked.

    Place it like a `Compact`: before the node that asks, and lead that node's outcome `too_long` to it. The calls stay,
    so lead its other outcomes to a `Compact`, for when clearing is not enough:

        START -> clear
        clear -> think   : done
        clear -> compact : cleared
        clear -> compact : too_long
        compact -> think
        think -> clear   : too_long

    It takes `cleared` if it replaced any result. It does so if the next request would take more than `at` of the
    model's window, or more than its `max_tokens` leave, or if it was reached by `too_long`. If that would free less
    than a tenth of the window, or nothing after `too_long`, it takes `too_long`, if an edge names it. Otherwise it
    takes `done`. Without `usage=`, it replaces every old result at once.

    The results of the last `keep` rounds stay, pinned ones, and all of at most `over` characters. Results that were
    replaced stay in the journal.

    Raises:
        RequestTooLong: the node was reached by `too_long`, there is no result to replace but in the last round, and no
            edge names its own `too_long`.
    """

    look = "code"

    fills = ("messages", "usage")
    declares = (DONE, "cleared")
    if_named = (TOO_LONG,)

    class State(BaseModel):
        """The fields that the ports name by default, and one for `usage=`."""

        messages: Annotated[list[Message], append] = []
        """The conversation."""
        context_usage: ContextUsage | None = None
        """The size of the conversation at its last request."""

    effect: Effect = "pure"
    """It reads only the conversation."""
    messages: Annotated[str, Port(list)] = "messages"
    """Field with the conversation."""
    usage: Annotated[str | None, Port()] = None
    """Field with the `ContextUsage` that a `ReadReply` or `Respond` writes."""
    keep: PositiveInt = 3
    """Number of the last rounds whose results stay."""
    over: NonNegativeInt = 2_000
    """Number of characters up to which a result stays."""
    at: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Part of the window above which results are replaced."""

    @property
    def sees_tools(self) -> bool:
        """See `Node.sees_tools`."""
        return False

    @property
    def does(self) -> str:
        """See `Node.does`."""
        return "clears old results"

    async def run(self, state: object, ctx: Context) -> Outcome[str]:
        talk: list[Message] = list(getattr(state, self.messages))
        usage = ContextUsage.model_validate((self.usage and getattr(state, self.usage)) or {})
        refused = usage.is_refused(ctx, talk)
        if self.usage is not None and not refused and not (usage.window and usage.size(talk) > usage.limit(self.at)):
            return Outcome(DONE)
        now = self._cleared(talk, self.keep)
        if refused and now == talk:
            now = self._cleared(talk, 1)
        if now == talk and refused:
            reason = f"no earlier result is left that has more than {self.over:,} characters"
            server = "" if ctx.error is None else ctx.error.message
            words = WHAT_TO_DO.format(node=ctx.node, reason=reason, error=server)
            return Failing(TOO_LONG, error=RequestTooLong(words))
        if not refused and tokens_of(talk) - tokens_of(now) < GAIN * usage.window:
            error = StepError(f"{ctx.node}: clearing the old results would free less than {GAIN:.0%} of the window")
            return Failing(TOO_LONG, error=error, otherwise=DONE)
        if now == talk:
            return Outcome(DONE)
        update: dict[str, object] = {self.messages: replaced_by(state, self.messages, now)}
        if self.usage is not None:
            update[self.usage] = usage.shortened(talk, now, refusals=usage.refusals)
        return Outcome("cleared", update)

    def _cleared(self, talk: Sequence[Message], keep: int) -> list[Message]:
        parts = rounds(talk)
        old = [self._line(message) for part in parts[:-keep] for message in part]
        return [*old, *(message for part in parts[-keep:] for message in part)]

    def _line(self, message: Message) -> Message:
        size = len(message.content)
        short = size <= self.over and not message.images
        if message.role != "tool" or is_pinned(message) or CLEARED in (message.data or {}) or short:
            return message
        what = f"{size:,} characters" + (f" and {len(message.images)} pictures" if message.images else "")
        stored = (message.data or {}).get(OFFLOADED)
        again = f"{reads(stored)} reads it." if stored else "If you need it, and the call only reads, call again."
        content = f"[The result of {message.name}, {what}, was removed to save space. {again}]"
        data = {CLEARED: size, **({OFFLOADED: stored} if stored else {})}
        return message.model_copy(update={"content": content, "images": (), "data": data})
