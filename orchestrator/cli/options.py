"""Arguments and options that several commands share, and how their values are read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.exits import UsageError
from orchestrator.clock import age_of, moment_of

if TYPE_CHECKING:
    pass

RISKS = "none, read, write or dangerous"

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or its first characters (4 or more).", show_default=False)
]
Graph = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A shipped name, module:attr, module, file.py:attr, or a YAML or JSON file.",
        show_default=False,
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store of runs. Default: ORCHESTRATOR_STORE, else sqlite:///.orchestrator/runs.db.",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help="The engine that delivers runs to workers: restate://HOST:PORT or temporal://HOST:PORT. Default:"
        " ORCHESTRATOR_ENGINE.",
    ),
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="JSON|@FILE|-", help="State fields as a JSON object: as text, from a file, or from stdin."
    ),
]
QuestionText = Annotated[
    str | None, typer.Argument(metavar="QUESTION", help="Fills the graph's input field.", show_default=False)
]
RunId = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="Your own id: the same id and input mean the same run.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="REF",
        help="A built-in group, module, module:attr, file.py:attr or mcp:SERVER. Repeatable. Default: arithmetic.",
    ),
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]REF",
        help="openai:NAME, responses:NAME, anthropic:NAME, gemini:NAME, offline, module:attr or file.py:attr. Default: "
        "ORCHESTRATOR_MODEL, else offline. With NAME= the model of the nodes that use this name. Repeatable.",
    ),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        help="A module whose code a YAML or JSON graph may use. Repeatable. Others are asked about, or refused.",
    ),
]
RunGraph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="GRAPH",
        help="The run's graph. Needed if your command line did not start the run in this store.",
    ),
]
RunTools = Annotated[
    list[str] | None,
    typer.Option("--tools", metavar="REF", help="Tools to replace those that the run was started with."),
]
RunModel = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]REF",
        help="A model to replace the one that the run was started with, or the one of this name. Repeatable.",
    ),
]
PauseBefore = Annotated[
    list[str] | None,
    typer.Option(
        "--pause-before",
        metavar="NODE",
        help="Pause before this node, until the run is resumed; OUTER/INNER names one in a subgraph. Repeatable.",
    ),
]
PauseAfter = Annotated[
    list[str] | None,
    typer.Option("--pause-after", metavar="NODE", help="Pause after this node, until the run is resumed. Repeatable."),
]
Approve = Annotated[
    str | None,
    typer.Option(
        "--approve",
        metavar="RISK",
        help=f"Approve calls of tools up to this risk without asking: {RISKS}. Stored with the run.",
    ),
]
Question = Annotated[
    str | None,
    typer.Option(
        "--question",
        metavar="ID",
        help="The question to answer. Required if several are open, or if it has not been shown to you.",
    ),
]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Your name for the journal. Default: your user name.")
]
NoResume = Annotated[bool, typer.Option("--no-resume", help="Record the answer without continuing the run.")]
Traceback = Annotated[
    bool, typer.Option("--traceback", help="If the run failed, print the traceback of the failed node to stderr.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An option of the function that builds the graph, such as max_steps=5 of tool_user. Stored with the run. "
        "Repeatable.",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps",
        metavar="N",
        min=1,
        help="Maximum number of steps of the run; each visit of a node is one. For the rounds of a strategy: "
        "--set max_steps=N.",
    ),
]
MaxSeconds = Annotated[
    float | None, typer.Option("--max-seconds", metavar="S", help="Maximum number of seconds of the run.")
]
At = Annotated[
    int | None, typer.Option("--at", metavar="SEQ", min=1, help="The run after record SEQ. Default: the latest record.")
]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="K=V", help="A label of the run. Repeatable.")]


@dataclass(frozen=True)
class Answering:
    """Options of the commands that answer a question."""

    question: Question = None
    by: By = None
    no_resume: NoResume = False
    approve: Approve = None
    engine: Engine = None


@dataclass(frozen=True)
class Continuing:
    """Options of the commands that continue a run and report its result."""

    graph: RunGraph = None
    tools: RunTools = None
    model: RunModel = None
    trust: Trust = None
    traceback: Traceback = False
    json: Json = False
    store: Store = None


def risk(value: str | None) -> str | None:
    """Return the value of `--approve`, checked.

    Raises:
        UsageError: the value is not a risk.
    """
    if value is not None and value not in ("none", "read", "write", "dangerous"):
        raise UsageError(f"--approve {value}: use {RISKS}")
    return value


def limits(steps: int | None, seconds: float | None) -> dict[str, float]:
    """Return the limits of `--max-steps` and `--max-seconds`, checked.

    Raises:
        UsageError: a value is not a number above 0.
    """
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--max-seconds {seconds}: use a number above 0")
    return {name: value for name, value in (("steps", steps), ("seconds", seconds)) if value is not None}


def pairs(values: list[str] | None) -> dict[str, str]:
    """Return `--label K=V ...` as a mapping.

    Raises:
        UsageError: a label has no `=`.
    """
    found: dict[str, str] = {}
    for value in values or ():
        key, equals, rest = value.partition("=")
        if not equals or not key:
            raise UsageError(f"--label {value}: use the form K=V")
        found[key] = rest
    return found


def parse_json(text: str, option: str) -> object:
    """Parse the JSON of an option.

    Raises:
        UsageError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError(f"{option} is nested too deeply") from None
    except ValueError as error:
        example = """names and texts have double quotes, and single quotes go around the whole: '{"name": "text"}'"""
        raise UsageError(f"{option} is not JSON: {error}; {example}") from None


def moment(text: str, option: str) -> datetime:
    """Parse a time: an age before now, or a date, local if it has no time zone.

    Raises:
        UsageError: the text is neither.
    """
    try:
        return moment_of(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def seconds(text: str, option: str) -> float:
    """Return the seconds of an age such as `30d`.

    Raises:
        UsageError: the text is not an age.
    """
    try:
        return age_of(text).total_seconds()
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
