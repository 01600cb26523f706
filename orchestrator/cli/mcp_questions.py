"""Questions of a run as forms that an MCP client shows to its user (elicitation), and the answers in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.cli.terminal_questions import ASKABLE, outcome_of, value_of
from orchestrator.kernel.question import Approve, Deny, Value
from orchestrator.render.terminal.event_lines import question_text
from orchestrator.tools.mcp.elicitation import secret_in
from orchestrator.views.call_questions import outcome_choices
from orchestrator.visible import narrow

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.types import ElicitRequest

    from orchestrator.kernel.question import Answer, Question

ANSWER = "answer"
"""The field of a form for a value that is no object."""
_APPROVE, _DENY = "approve", "deny"
_KEYWORDS = (
    *("type", "title", "description", "default", "minLength", "maxLength", "minimum", "maximum"),
    *("enumNames", "minItems", "maxItems"),
)
_FORMATS = ("email", "uri", "date", "date-time")


@dataclass(frozen=True)
class Form:
    """A question as a form.

    Args:
        question: the question.
        fields: JSON Schemas of the form's fields, of the few types that clients can show.
        required: names of the fields that have to be filled in.
    """

    question: Question
    fields: Mapping[str, Mapping[str, object]]
    required: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return the key of the form among others: it changes with the content of the question."""
        return f"{self.question.id}@{self.question.digest[:16]}"

    def message(self, fault: str = "") -> str:
        """Return the text above the fields. `fault`: why the answer before was refused."""
        return f"{f'Not accepted: {narrow(fault)}' + chr(10) if fault else ''}{question_text(self.question)}"

    def schema(self) -> dict[str, object]:
        """Return the schema of the form."""
        return {"type": "object", "properties": dict(self.fields), "required": [*self.required]}

    def request(self, fault: str = "") -> ElicitRequest:
        """Return the form as a request to the client. `fault`: why the answer before was refused."""
        from mcp.types import ElicitRequest, ElicitRequestFormParams

        return ElicitRequest(
            params=ElicitRequestFormParams(message=self.message(fault), requested_schema=self.schema())
        )

    def answer(self, action: str, content: Mapping[str, object] | None) -> Answer | None:
        """Return what the user answered; None if the user closed the form.

        Args:
            action: `accept`, `decline` or `cancel`.
            content: the values of the fields.

        Raises:
            ValueError: a field is missing or has no such value.
        """
        if action == "decline":
            return Deny(reason="declined by the user of the client")
        if action != "accept":
            return None
        given = {name: value for name, value in (content or {}).items() if value is not None}
        for name in self.required:
            if name not in given:
                raise ValueError(f"the field {name!r} is missing")
        if self.question.kind == "approval":
            return _approval(self.question, given)
        if self.question.kind == "unknown_outcome":
            return _outcome(self.question, given)
        if [*self.fields] != [ANSWER]:
            return Value(value=given)
        value = given[ANSWER]
        return value_of(self.question, value) if isinstance(value, str) else Value(value=value)


def form_of(question: Question) -> Form | None:
    """Return a question as a form; None if the user of a client cannot answer it, or not without showing a secret."""
    schema = question.schema_ or {}
    if question.kind not in ASKABLE or secret_in(schema):
        return None
    if question.kind == "approval":
        decisions = [_APPROVE, _DENY, *question.choices]
        reason = {"type": "string", "title": "Reason", "description": "Why not, for the agent."}
        return Form(question, {"decision": _one_of("Decision", decisions), "reason": reason}, ("decision",))
    if question.kind == "unknown_outcome":
        choices = outcome_choices(question)
        said = "; ".join(f"{one.choice}: {one.label}" for one in choices)
        form = next((one.result for one in choices if one.result), "")
        fields = {"outcome": {**_one_of("Outcome", [one.choice for one in choices]), "description": said}}
        if form:
            fields["result"] = {"type": "string", "title": "Result", "description": f"Its result, as {form}."}
        return Form(question, fields, ("outcome",))
    if question.choices:
        return Form(question, {ANSWER: _one_of("Answer", [*question.choices])}, (ANSWER,))
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict) and properties and [*properties] != [ANSWER]:
        flat = {name: _flat(one) for name, one in properties.items()}
        required = schema.get("required")
        if all(flat.values()):
            named = tuple(name for name in required if name in flat) if isinstance(required, list) else ()
            return Form(question, {name: one for name, one in flat.items() if one is not None}, named)
    field = _flat(schema) if schema else {"type": "string"}
    return Form(
        question, {ANSWER: field or {"type": "string", "description": f"JSON: {json.dumps(schema)[:2000]}"}}, (ANSWER,)
    )


def _approval(question: Question, given: Mapping[str, object]) -> Answer:
    decision = given["decision"]
    if isinstance(decision, str) and decision in question.choices:
        return Value(value=decision)
    if decision == _APPROVE:
        return Approve()
    if decision == _DENY:
        return Deny(reason=str(given.get("reason", "")))
    raise ValueError(f"'decision' is neither {_APPROVE!r} nor {_DENY!r}")


def _outcome(question: Question, given: Mapping[str, object]) -> Answer:
    choices = {one.choice: one for one in outcome_choices(question)}
    chosen = choices.get(str(given["outcome"]))
    if chosen is None:
        raise ValueError(f"'outcome' is none of {', '.join(choices)}")
    if not chosen.result:
        return value_of(question, chosen.choice)
    if "result" not in given:
        raise ValueError(f"the outcome {chosen.choice!r} needs the field 'result'")
    return outcome_of(question, str(given["result"]))


def _one_of(title: str, values: list[str]) -> dict[str, object]:
    return {"type": "string", "title": title, "enum": values}


def _flat(schema: object) -> dict[str, object] | None:
    """Return the schema of a field with the keywords that forms may have; None if it cannot be one field."""
    if not isinstance(schema, dict):
        return None
    found = {name: schema[name] for name in _KEYWORDS if name in schema}
    if schema.get("type") == "array":
        items = schema.get("items")
        several = _choices(items, "anyOf") if isinstance(items, dict) else {}
        return {**found, "items": several} if several else None
    if schema.get("type") not in ("string", "number", "integer", "boolean"):
        return None
    if schema.get("format") in _FORMATS:
        found["format"] = schema["format"]
    chosen = _choices(schema, "oneOf")
    return None if "enum" in schema and not chosen else {**found, **chosen}


def _choices(schema: Mapping[str, object], titled: str) -> dict[str, object]:
    """Return the keywords of a choice between texts: `enum`, or constants with titles; empty if it is none."""
    for name in ("enum", titled):
        listed = schema.get(name)
        one = (
            [each.get("const") if isinstance(each, dict) else each for each in listed]
            if isinstance(listed, list)
            else []
        )
        if schema.get("type", "string") == "string" and one and all(isinstance(each, str) for each in one):
            return {"type": "string", name: listed}
    return {}


def can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client shows forms to its user."""
    capabilities = ctx.session.client_capabilities
    found = capabilities.elicitation if capabilities is not None else None
    return found is not None and (found.form is not None or found.url is None)


def name_of_client(ctx: ServerRequestContext[Any, Any]) -> str:
    """Return who answers in a form, for the journal."""
    params = ctx.session.client_params
    name = params.client_info.name if params is not None else ""
    return f"user of MCP client {narrow(name)[:60]}".rstrip()
