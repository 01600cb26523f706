"""A tool that asks the user."""

from __future__ import annotations

from orchestrator.context import Context
from orchestrator.errors import ToolError
from orchestrator.json import canonical
from orchestrator.tools.tool import Tool

_LONGEST = 10_000
"""Characters of the longest question."""


class AskHuman(Tool):
    """Ask a person through the run, which waits for the answer, across restarts if necessary.

        AskHuman(deadline=3600)

    The run asks the question (its `kind` is `input`): it is journaled, shown by `orchestrator show`, and answered by
    `orchestrator answer`, `Executor.answer`, or at the terminal where the run was started. If the person declines to
    answer, or the deadline passes, the call fails with a message that says so.
    """

    name = "ask_human"
    risk = "none"
    effect = "idempotent"  # the question is the same after a crash, and gets the same answer
    group = "ask_human"

    def __init__(self, *, deadline: float | None = None) -> None:
        """
        Args:
            deadline: seconds to wait for the answer; None: no limit.
        """
        self._deadline = deadline

    async def call(self, question: str, ctx: Context[object], choices: list[str] | None = None) -> str:
        """Ask the user a question and wait for the answer. Use this for what only the user can know or decide.

        Args:
            question: The question, with everything needed to answer it.
            choices: The possible answers, if they are known; otherwise any text is accepted.
        """
        if not question.strip():
            raise ToolError("the question is empty")
        if len(question) > _LONGEST:
            raise ToolError(f"the question has {len(question)} characters, and the limit is {_LONGEST}")
        if choices is not None and (len(set(choices)) < len(choices) or not all(choices)):
            raise ToolError("the choices must differ from each other, and none may be empty")
        if getattr(ctx, "ask", None) is None:
            raise ToolError("only a run can ask a person: call this tool from a node")
        answer = await ctx.ask("input", prompt=question, choices=choices or (), deadline=self._deadline)
        if answer.type == "deny":
            why = f": {answer.reason}" if answer.reason else ""
            raise ToolError(f"the user did not answer{why}")
        value = answer.value if answer.type == "value" else True
        return value if isinstance(value, str) else canonical(value)


ask_human = AskHuman()
