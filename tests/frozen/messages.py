"""What the checks say of broken graphs, and what errors say that have words of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator import Limits, errors
from orchestrator.errors import InvalidGraph
from orchestrator.graph import Edge
from orchestrator.graph.edges import parse_edges
from tests.frozen.texts import Sections
from tests.graph.test_checks import AB, FORK, TWO, A, Inside, Step, build, choice, inner, writer
from tests.kernel.sketches import HARD, Sketch, limited, mutated, problems_of, structured, unstructured

THREE = {name: Step() for name in "abcd"}
BROKEN: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    (A, None, {"name": "my graph"}),
    (A, {}, {}),
    ([("START", "1a"), ("1a", "END")], {"1a": Step()}, {}),
    *((A, {"a": Step(), name: Step()}, {}) for name in ("START", "END", "STOP", "*")),
    *((A, {"a": choice(*outcomes)}, {}) for outcomes in (("ok", "error"), ("ok", "each"), ("ok", "ok"), ("x y",), ())),
    (A, None, {"limits": Limits(visits={"aa": 3})}),
    (f"{A}\nwrite -> a", None, {}),
    ("START -> a -> ned", None, {}),
    ("START -> aa -> END", {"aaa": Step()}, {}),
    (
        [Edge("START", "a"), Edge("a", "END"), Edge("END", "a"), Edge("a", "START"), Edge("*", "a", "ok"),
         Edge("*", "a", "error", "items"), Edge("START", "a", "ok")], None, {},
    ),
    ("START -> a -> END : god\na -> a : bad", {"a": choice("good", "bad")}, {}),
    ("START -> a -> END : good", {"a": choice("good", "bad")}, {}),
    ("START -> a\nSTART -> END", None, {}),
    ("START -> a -> END : ok\na -> a", {"a": choice("ok")}, {}),
    (f"{A}\nSTART -> a", None, {}),
    ("a -> END", None, {}),
    (f"{AB}\n* -> a : exhausted\n* -> b : exhausted", TWO, {}),
    (f"{A}\nb -> c -> b", {**TWO, "c": Step()}, {}),
    ("START -> a -> b -> a\nSTART -> END", TWO, {}),
    (A, None, {"input": ("txt", "text"), "output": "result"}),
    ("START -> a : each item\na -> END", None, {}),
    ("START -> a : each text\na -> END", None, {}),
    (A, {"a": Step(text="txt", show=("text", "sen"))}, {}),
    (A, {"a": Step(text="items", list="items")}, {}),
    (A, {"a": Step(reads=frozenset({"x"}), writes=frozenset({"txt"}))}, {}),
    (A, {"a": Inside(graph=inner, inputs={"qery": "text"}, outputs={"text": "note"})}, {}),
    (FORK, {"a": Step(), "b": writer("text"), "c": writer("text", "seen")}, {}),
    ("START -> a -> b : each items\nb -> END", {"a": Step(), "b": writer("text")}, {}),
    ("START -> a -> b, c -> d -> END", THREE, {}),
    ("START -> a -> b, c -> d -> END", {**THREE, "d": Step(join=3)}, {}),
    (A, {"a": Step(join="all")}, {}),
)  # fmt: skip
ARROWS = (
    "a", "a ->", "-> a", "a -> b :", "a -> b : x y", "a -> b, ", "a => b", "a -> b : each", "a -> b : ok each",
    "a - > b", "a -> b -> : x", "a b -> c", "a -> 'b'", "a, b -> c, d : x\nd -> ", "# nothing", "",
)  # fmt: skip


def checks() -> Sections:
    """The messages of the checks."""
    found: dict[str, str] = {}
    for number, (edges, nodes, options) in enumerate(BROKEN):
        found[f"graph {number}"] = _said(lambda e=edges, n=nodes, o=options: build(e, n, **o))  # type: ignore[misc]
    for text in ARROWS:
        found[f"arrows {text!r}"] = _said(lambda text=text: parse_edges(text))  # type: ignore[misc]
    for name, sketch in _sketches():
        if problems := problems_of(sketch):
            found[name] = "\n".join(f"{one.code} {one.message} {one.nodes}" for one in problems)
    return found


def _sketches() -> Iterator[tuple[str, Sketch]]:
    for text in HARD:
        yield text, Sketch.of(text, {})
    for draw in (mutated, unstructured, structured, limited):
        for seed in range(150):
            yield f"{draw.__name__} {seed}", draw(seed)


def _said(make: Any) -> str:
    try:
        return f"fine: {make()}"
    except (errors.OrchestratorError, ValueError, TypeError) as error:
        more = (
            [f"{one.code} {one.place if hasattr(one, 'place') else ''} {one.nodes}" for one in error.problems]
            if isinstance(error, InvalidGraph)
            else []
        )
        return "\n".join([f"{type(error).__name__}: {error}", *more])


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "UntrustedCode": (["a.b:c", "d:e"],),
    "RunUnknown": ("r",),
    "RunExists": ("r",),
    "RunEnded": ("r", "failed"),
    "RunConflict": ("r", "held"),
    "QuestionUnknown": ("r", "q"),
    "RunFailed": ("r", "failed", "ValueError: broken"),
    "StoreCorrupt": ("r", 7, "not JSON"),
}


def errors_() -> Sections:
    """Every error class: its bases, whether it can be tried again, and its words where it has its own."""
    found: dict[str, str] = {}
    for name, kind in sorted(vars(errors).items()):
        if not (isinstance(kind, type) and issubclass(kind, errors.OrchestratorError)):
            continue
        bases = " ".join(base.__name__ for base in kind.__mro__)
        said = str(kind(*ARGUMENTS[name])) if name in ARGUMENTS else ""
        found[name] = f"{bases}\nretryable={kind.retryable} resumable={kind.resumable}\n{said}"
    return found
