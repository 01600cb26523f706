"""The input of a run: QUESTION, or `--input` as text, from a file or from stdin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orchestrator.cli.exits import UsageError
from orchestrator.cli.options import parse_json
from orchestrator.values import MAX_BYTES, read_bounded

if TYPE_CHECKING:
    from orchestrator.graph.model import GraphDefinition


def input_of(graph: GraphDefinition, question: str | None, given: str | None) -> object:
    """Return the input of a run: QUESTION for a graph with one input field, or `--input`.

    Raises:
        UsageError: it cannot be read, a required field is missing, or no input field matches it.
        InvalidInput: it does not fit the fields.
    """
    values = _given(graph, question, given)
    missing = [name for name in graph.input_fields if graph.schema.field(name).required]
    if values is None and missing:
        how = (
            "QUESTION, a text in quotes, or --input JSON"
            if isinstance(graph.input, str)
            else "--input with a JSON object"
        )
        raise UsageError(f"graph {graph.name!r} needs an input, {', '.join(missing)}: give {how}")
    graph.initial(values)  # errors are reported before anything is stored
    return values


def _given(graph: GraphDefinition, question: str | None, given: str | None) -> object:
    if question is None:
        return None if given is None else json_of(given)
    if not isinstance(graph.input, str):
        raise UsageError(
            f"graph {graph.name!r} has no single input field for QUESTION: use --input "
            f"with state fields ({', '.join(graph.input_fields)})"
        )
    if given is not None:
        raise UsageError(f"--input and QUESTION both set {graph.input!r}, the one input of the graph: give one of them")
    return {graph.input: question}


def json_of(given: str) -> object:
    """Return the JSON of `--input`: as text, in a file, or on stdin.

    Raises:
        UsageError: it cannot be read.
    """
    text, place = given, "--input"
    if given == "-":
        text, place = sys.stdin.read(MAX_BYTES + 1), "--input - (stdin)"
    elif given.startswith("@"):
        place = f"--input {given}"
        try:
            text = read_bounded(given[1:])
        except (OSError, ValueError) as error:
            raise UsageError(f"{place}: {error}") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{place}: the input has more than {MAX_BYTES:,} characters, the limit for a value")
    return parse_json(text, place)
