"""Command explain: the meaning of codes of errors. Its text is docs/errors.md, which the package contains."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator._lazy import lazy_modules
from orchestrator.cli import exits, options
from orchestrator.cli.output import out, out_json, out_table, shell_command
from orchestrator.spelling import close_to

if TYPE_CHECKING:
    from orchestrator.render.terminal import tables
else:  # other commands only use `hint`
    (tables,) = lazy_modules("orchestrator.render.terminal", "tables")

PAGE = Path(__file__).parents[1] / "errors.md"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_CODE = re.compile(r"\((?P<check>C[1-9](?:\.\w+)?)\)$|\b(?P<error>[A-Z]\w+): ", re.M)


@cache
def sections() -> dict[str, str]:
    """Return the text of each code in Markdown, in the order of the page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""  # a checkout without symbolic links has no page
    _, *found = re.split(r"^## ", text, flags=re.M)
    return {code: text.strip() for code, _, text in (one.partition("\n") for one in found)}


def hint(text: str, *codes: str) -> str:
    """Return a message, and below it the command that explains its codes, if the page has a section about one.

    Args:
        text: the message; codes of checks are in brackets at the ends of its lines, names of errors before a colon.
        codes: further codes.
    """
    found = [one["check"] or one["error"] for one in _CODE.finditer(text)]
    known = [code for code in dict.fromkeys((*found, *codes)) if code in sections()]
    lines = [text] if text else []
    return "\n".join([*lines, shell_command("explain", *known)] if known else lines)


def explain(
    codes: Annotated[
        list[str] | None,
        typer.Argument(metavar="CODE", help="Codes, such as C2, GraphChanged or exhausted.", show_default=False),
    ] = None,
    json: options.Json = False,
) -> int:
    """Explain the codes of errors.

    Prints what each code means, an example, and how to fix it. Without CODE, lists all codes. C1 stands for all codes
    that begin with C1.

    Example: orchestrator explain C2
    """
    known = sections()
    found = [one for code in codes or known for one in _named(code)]
    if json:
        out_json([{"code": code, "text": known[code]} for code in found])
    elif codes:
        out("\n\n".join(f"{code}\n\n{_LINK.sub(_plain, known[code])}" for code in found))
    else:
        columns = (tables.Column("code"), tables.Column("meaning", least=24))
        out_table(columns, [(code, _summary(known[code])) for code in found])
    return exits.COMPLETED


def _named(code: str) -> list[str]:
    """Return the codes that a word stands for.

    Raises:
        UsageError: there is no such code.
    """
    known = {one.casefold(): one for one in sections()}
    word = code.casefold()
    found = [known[word]] if word in known else [one for name, one in known.items() if name.startswith(f"{word}.")]
    if not found:
        close = close_to(word, known)
        fix = f"did you mean {known[close]}?" if close else f"`{shell_command('explain')}` lists the codes"
        raise exits.UsageError(f"no error has the code {code!r}; {fix}")
    return found


def _plain(link: re.Match[str]) -> str:
    """Return a link of the page for a terminal: its text and the page."""
    return f"{link[1]} (docs/{link[2].partition('#')[0]})"


def _summary(text: str) -> str:
    """Return the first sentence."""
    return re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0].replace("\n", " ")
