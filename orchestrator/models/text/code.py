"""The form of CodeAct (https://arxiv.org/abs/2402.01030): a block of Python, whose functions are the tools.

The first block of a reply is one call of `CODE`, with the code as its argument. Blocks marked `python` are read, those
in `<execute>` as in the paper, and blocks without a mark that call one of the functions.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import dedent
from typing import Any

from orchestrator.models.messages import ToolCall
from orchestrator.models.text.forms import MARK, Form, OfferedTool, Parsed, Unread, partial, tokens_broken

CODE = "python"
"""Name of the call that runs a block of code."""
_begin = re.compile(
    r"^[ \t]{0,8}(?:<(?P<tag>execute|code)>|(?P<fence>`{3,20}|~{3,20})[ \t]{0,8}(?P<mark>[^\s`]{0,40})[ \t]{0,40}$)",
    re.IGNORECASE | re.MULTILINE,
)
_fence = re.compile(r"`{3,20}|~{3,20}")
_tag = re.compile(r"<(?=(?:execute|code)>)", re.IGNORECASE)
_run = re.compile(r"`{1,20}")
_not_a_name = re.compile(r"\W")
_MARKS = ("python", "python3", "py", "tool_code")
_TYPES = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "array": "list", "object": "dict"}
_LONGEST = 1_000_000
"""Maximum number of characters of a reply that are searched for code."""


class CodeForm(Form):
    """Writes calls as code, and results as what it prints."""

    name = "code"
    alone = True
    how = (
        "To run code, write one block of this form, and nothing behind it:\n"
        "```python\nprint(1 + 1)\n```\n"
        "You are then told, as an Observation, what it prints and its error if it fails; never write one yourself."
    )
    several = "A block may call as many functions as it needs, with variables, loops and conditions."

    def read(self, text: str, offers: Sequence[OfferedTool], ended: bool) -> Parsed:
        """See `Form.parse`. The first block counts; later text was written without its result."""
        at = 0
        while (begin := _begin.search(text, at, _LONGEST)) is not None:
            code, end = _inside(text, begin)
            is_code = begin["tag"] or begin["mark"].lower() in _MARKS or (not begin["mark"] and _calls(code, offers))
            if is_code and end is None and not ended:
                raise Unread("the reply was cut within its code")
            if is_code and code.strip():
                content, past = text[: begin.start()].rstrip(), len(text) if end is None else end
                call = ToolCall(id="", name=CODE, arguments={"code": code})
                return Parsed(content, (call,), cut=text[past:].strip(), words=text[len(content) : past].rstrip())
            if end is None:
                break
            at = end
        return Parsed(text)

    def render(self, content: str, calls: Sequence[ToolCall]) -> str:
        """See `Form.render`."""
        code = "\n".join(str((call.arguments or {}).get("code", call.raw)) for call in calls)
        fence = "`" * max(3, 1 + max((len(run) for run in _run.findall(code)), default=0))
        block = f"{fence}python\n{code}\n{fence}"
        return f"{content}\n{block}" if content else block

    def edge(self, text: str, start: int) -> tuple[int, bool]:
        """See `Form.edge`. After the first fence all is held back: it may be code."""
        found = [match.start() for way in (_fence, _tag) if (match := way.search(text, start)) is not None]
        if found:
            return min(found), True
        return min(partial(text, start, mark) for mark in ("```", "~~~", "<execute>", "<code>")), False

    def defused(self, text: str, offers: Sequence[OfferedTool]) -> str:
        """See `Form.defused`."""
        return _tag.sub(f"<{MARK}", _fence.sub(lambda fence: f"{fence[0]}{MARK}", tokens_broken(text)))

    def result(self, name: str, number: int | None, content: str) -> str:
        """See `Form.result`."""
        return f"Observation:\n{content}"

    def described(self, offer: OfferedTool, offers: Sequence[OfferedTool]) -> str:
        """See `Form.described`. A function, as Python declares it."""
        name = function_names(one.name for one in offers)[offer.name]
        given = [
            f"{parameter}: {_type(schema)}{'' if required else ' = None'}"
            for parameter, schema, required in parameters_of(offer.parameters)
        ]
        about = [offer.description.strip()]
        for parameter, schema, _ in parameters_of(offer.parameters):
            if isinstance(schema, Mapping) and schema.get("description"):
                about.append(f"{parameter}: {schema['description']}")
        words = self.defused("\n".join(line for line in about if line), offers)
        body = "".join(f"\n    {line}".rstrip() for line in words.splitlines())
        return f"def {name}({', '.join(given)}):{body}"


def _inside(text: str, begin: re.Match[str]) -> tuple[str, int | None]:
    """Return the code of a block, and where the block ends; None if it does not."""
    if begin["tag"]:
        closing = re.compile(rf"</{begin['tag']}>", re.IGNORECASE)
    else:
        closing = re.compile(rf"^[ \t]{{0,8}}{begin['fence']}[`~]{{0,20}}[ \t]{{0,40}}$", re.MULTILINE)
    found = closing.search(text, begin.end())
    end, past = (None, None) if found is None else found.span()
    return dedent(text[begin.end() : end]).strip("\n").rstrip(), past


def _calls(code: str, offers: Sequence[OfferedTool]) -> bool:
    """Return True if a block without a mark calls a function."""
    names = [*function_names(one.name for one in offers if one.name).values(), "print"]
    return any(re.search(rf"(?<!\w){re.escape(name)}\(", code) for name in names)


def function_names(tools: Iterable[str]) -> dict[str, str]:
    """Return the name of the function for each tool: its own, if that is a name in Python and no other tool has it."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for tool in sorted(set(tools), key=lambda name: (not _is_name(name), name)):
        name = base = tool if _is_name(tool) else f"tool_{_not_a_name.sub('_', tool)}"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        found[tool] = name
    return found


def _is_name(tool: str) -> bool:
    return tool.isascii() and tool.isidentifier() and not keyword.iskeyword(tool) and not hasattr(builtins, tool)


def parameters_of(schema: Mapping[str, Any]) -> list[tuple[str, Any, bool]]:
    """Return name, schema and necessity of each parameter, in the order of a function: optional ones are last."""
    properties, required = schema.get("properties"), schema.get("required")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    needed = set(required) if isinstance(required, list | tuple) else set()
    return sorted(((name, one, name in needed) for name, one in known.items()), key=lambda one: not one[2])


def _type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(schema, Mapping) and isinstance(schema.get("enum"), list | tuple):
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    return _TYPES.get(kind, "object") if isinstance(kind, str) else "object"
