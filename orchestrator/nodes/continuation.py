"""How nodes ask a model to continue a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeAlias, get_args, get_origin

from pydantic import BaseModel, JsonValue, PositiveInt

from orchestrator.context import Context
from orchestrator.errors import AgentError, StepError
from orchestrator.graph.faults import Spelled
from orchestrator.graph.model import GraphDefinition, Port
from orchestrator.json import JsonObject, digest
from orchestrator.models.base import Model, ToolLike
from orchestrator.models.messages import Message, Reply, user
from orchestrator.models.messages import system as said
from orchestrator.models.text import TextProtocol
from orchestrator.nodes.conversation import trimmed
from orchestrator.nodes.templates import fill, filled_by

CallProtocol: TypeAlias = Literal["native", "json", "bracket", "plugin", "separator"]


class Talk(BaseModel, metaclass=Spelled):
    """The fields that asking a model and reading its reply have in common."""

    kind: ClassVar[str]

    messages: Annotated[str, Port(list)] = "messages"
    """Field with the conversation, one with the reducer `append` or a plain one."""
    protocol: CallProtocol = "native"
    """How the model calls tools: by itself, or in text of this form (see `TextProtocol`)."""
    finish: str = ""
    """Name of an action that is offered beside the tools, by which the model gives its answer; empty: none is."""
    tools_offered: bool = True
    """False: the model can only answer, in words or by `finish`. The text of a reply that cannot be used is the answer
    then, once the retries are spent."""

    def _fail(self, why: str) -> NoReturn:
        raise AgentError(f"{self.kind}: {why}")


class Continuation(Talk):
    """The fields of a request for the next message, and how it is made."""

    system: str = ""
    """The system message, verbatim; empty: none."""
    prompt: Annotated[str, filled_by("question")] = "{question}"
    """The user's message."""
    question: Annotated[str | None, Port(str)] = None
    """Field with the user's question; None: the conversation holds it."""
    tools_prompt: str | None = None
    """The words in which a form of text describes the tools; see `TextProtocol`."""
    parallel_tool_calls: bool | None = None
    """Whether to ask the model for several calls at once; None: leave it to the model."""
    keep: PositiveInt | None = None
    """The model sees so many messages at least, the latest ones, the system message and the questions; None: all."""
    task: str | None = None
    """The kind of decision, which is passed to the model with the messages."""

    def problems_in(self, name: str, graph: GraphDefinition) -> Iterator[str]:
        """See `Node.problems_in`."""
        if self.messages not in graph.schema.fields:
            return
        field = graph.schema.field(self.messages)
        if _item_type(field.annotation) in _NO_MESSAGE:
            yield f"{name} reads messages from {self.messages!r}, whose items are others: make it a list[Message]"
        given = (graph.input,) if isinstance(graph.input, str) else graph.input
        others = (node for other, node in graph.nodes.items() if other != name)
        written = any(node.updates is None or self.messages in node.updates for node in others)
        if self.question is None and given and self.messages not in given and not (written or field.required):
            yield (
                f"{name} has nothing to answer: nothing writes to {self.messages!r} before it. Name the field with the "
                f"question, such as question={given[0]!r}, or make {self.messages!r} an input of the graph"
            )

    def asked(self, state: object, talk: Sequence[Message], *, ended: bool) -> list[Message]:
        """The question as a message, if it is the user's turn.

        Args:
            state: the state, with the question.
            talk: the conversation so far.
            ended: a tool ended the work on the last question, so another question is the user's turn.
        """
        question = "" if self.question is None else str(getattr(state, self.question))
        theirs = not talk or talk[-1].role == "system" or (talk[-1].role == "assistant" and not talk[-1].tool_calls)
        if ended:
            last = next((message for message in reversed(talk) if message.role == "user"), None)
            theirs = last is None or question not in (last.content, (last.data or {}).get("question"))
        if not question.strip() or not theirs:
            return []
        return [user(fill(self.prompt, question=question), data={"question": question})]

    async def complete(
        self, model: Model, ctx: Context, talk: Sequence[Message], corrections: Sequence[Message]
    ) -> Reply:
        """Ask the model once.

        Args:
            model: the model, see `model_of`.
            ctx: the context of the step.
            talk: the conversation, with the question.
            corrections: replies that could not be used, each with the reason.

        Raises:
            StepError: a tool has the name of the action `finish`.
        """
        tools = self._offered(ctx)
        options: dict[str, Any] = {}
        if tools and self.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = self.parallel_tool_calls
        head = [said(self.system)] if self.system else []
        messages = [*head, *trimmed(talk, self.keep), *corrections]
        return await model.complete(messages, tools, task=self.task, **options)

    def model_of(self, ctx: Context, talk: Sequence[Message], corrections: Sequence[Message] = ()) -> Model:
        """The step's model, which makes and reads calls in the form of `protocol`.

        Raises:
            AgentError: there is nothing to answer.
        """
        if not any(message.role != "system" for message in talk):
            self._fail("there is nothing to answer: the question is empty, and so is the conversation")
        if self.protocol == "native":
            return ctx.model
        numbers = count()
        place: dict[str, object] = {"run": ctx.run_id, "path": ctx.path, "node": ctx.node, "after": len(talk)}
        if corrections:
            place["corrected"] = len(corrections)

        def new_id() -> str:
            """An id that a step which runs again after a crash gives again."""
            return digest({**place, "call": next(numbers)})

        # A call of an unknown tool is refused where calls are checked, as with a model that calls tools by itself.
        unknown: Literal["call", "text"] = "call" if self.tools_offered else "text"
        return TextProtocol(ctx.model, self.protocol, tools_prompt=self.tools_prompt, new_id=new_id, unknown=unknown)

    def _offered(self, ctx: Context) -> list[ToolLike]:
        if self.finish and self.finish in ctx.tools:
            raise StepError(f"{ctx.node}: a tool is named {self.finish!r}; give the action finish= another name")
        tools = ctx.tools if self.tools_offered else ()
        return [*tools, *([_finishing(self.finish)] if self.finish else [])]


def _finishing(name: str) -> JsonObject:
    """The action that ends the work, as a model is offered it."""
    answer = {"type": "string", "description": "The final answer."}
    parameters = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    what = "End the work, and give the final answer to the question."
    function = {"name": name, "description": what, "parameters": {**parameters, "additionalProperties": False}}
    return {"type": "function", "function": function}


def _item_type(annotation: Any) -> object:
    """The type of the items of a list that is not a union; None if it is not known."""
    return next(iter(get_args(annotation)), None) if get_origin(annotation) is list else None


_NO_MESSAGE = (Any, JsonValue, str, int, float, bool, dict)
"""Types of items that stay what they were as JSON."""
