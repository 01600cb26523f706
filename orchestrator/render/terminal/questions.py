"""Questions of a run as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.render.terminal import texts
from orchestrator.visible import BAR, barred, narrow

if TYPE_CHECKING:
    from orchestrator.kernel.question import Question


def question_text(question: Question) -> str:
    """A question with everything that it shows. Of a tool call: the tool, and exactly its arguments."""
    place = "/".join(part for part in (question.path, question.node) if part)
    lines = [narrow(f"{question.kind}{f' at {place}' if place else ''}")]
    if question.prompt:
        lines.append(barred(question.prompt, f"  {BAR}"))
    payload = dict(question.payload)
    last = ""
    if question.kind == "approval" and "tool" in payload:
        tool, args = narrow(str(payload.pop("tool"))), texts.compact(payload.pop("args", {}))
        lines += [f"  tool  {tool}", f"  args  {args}"]
        payload.pop("call_id", None)
        # Long arguments push what stands above them off the screen.
        risk = narrow(str(payload.get("risk", "unknown")))
        last = f"  = a call of {tool}, risk {risk}, with {len(args):,} characters of arguments as shown"
    lines += [f"  {narrow(name)}  {texts.compact(value)}" for name, value in payload.items()]
    if question.choices:
        lines.append(f"  choices  {narrow(', '.join(question.choices))}")
    return "\n".join([*lines, last] if last else lines)
