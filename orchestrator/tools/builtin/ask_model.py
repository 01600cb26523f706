"""A model as a tool, for general knowledge and for reading the output of other tools."""

from __future__ import annotations

from orchestrator.context import Context
from orchestrator.errors import ToolError
from orchestrator.models.messages import system, user
from orchestrator.tools.tool import Tool

SYSTEM = "Answer in a few words, directly, and with nothing around them."


class AskModel(Tool):
    """Asks the model of the step that calls the tool, or one of the executor's `models` by name.

        AskModel(model="cheap").with_(name="LLMWorker")

    The question and the reply are journaled with the step, and count towards the run's limits.
    """

    name = "ask_model"
    risk = "none"
    effect = "idempotent"
    group = "ask_model"

    def __init__(self, *, model: str | None = None, system: str = SYSTEM) -> None:
        """
        Args:
            model: name of one of the executor's models; None: the model of the step.
            system: system message for the model; empty: none.
        """
        self._model, self._system = model, system

    async def call(self, question: str, ctx: Context[object]) -> str:
        """Ask a language model, which sees nothing but the question. Use it for general knowledge, and to find or
        rewrite something in a text that the question contains.

        Args:
            question: the question or instruction, with everything needed to answer it.
        """
        if self._model is not None and self._model not in ctx.models:
            raise ToolError(f"there is no model {self._model!r}")
        model = ctx.model if self._model is None else ctx.models[self._model]
        first = [system(self._system)] if self._system else []
        reply = await model.complete([*first, user(question, data={"question": question})], task="answer")
        if reply.refused:
            raise ToolError(f"the model refused to answer ({reply.finish})")
        return reply.text.strip()


ask_model = AskModel()
