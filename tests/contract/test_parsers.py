"""What reads text of others takes time in proportion to the text, whatever the text is."""

from __future__ import annotations

import ast
import gc
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import thread_time

import pytest

from tests.contract.attacks import Attack, attacks, beginnings, fillers
from tests.contract.parsers import OWN, PARSERS, Parser
from tests.support.sizes import sized

ROOT = Path(__file__).parents[2]
NAMES = [pytest.param(name, marks=pytest.mark.browser if parser.browser else ()) for name, parser in PARSERS.items()]
_SMALL = 4_000
_TIMES = 4
"""How much longer each text is than the one before."""
_POWER = 1.6
"""Time may grow with this power of the length: in proportion it is 1, and 2 where it grows with the square."""
_LEAST = 0.001
"""Seconds below which nothing is compared."""
_FIELDS = re.compile(r"(?P<function>compile|match|fullmatch|search|sub|subn|split|findall|finditer)")


@cache
def trees() -> dict[str, ast.Module]:
    """The code that names `re`, by module."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(text)
        for package in ("orchestrator", "graphs")
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search(r"\bre\b", text := path.read_text())
    }


@cache
def sites() -> dict[str, str]:
    """Every use of `re` in the code: `module:name` that it is assigned to, or `module:function()` that it stands in."""
    found: dict[str, str] = {}
    for module, tree in trees().items():
        for name in _uses(tree):
            found[f"{module}:{name}"] = module
    return found


def _uses(tree: ast.Module) -> Iterator[str]:
    def walk(node: ast.AST, place: str) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{node.name}()"
        elif not place and isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
            if _made_here(node):
                yield names[0]
            return
        elif _is_re(node):
            yield place or "?"
        for child in ast.iter_child_nodes(node):
            yield from walk(child, place)

    yield from walk(tree, "")


def _made_here(node: ast.AST) -> bool:
    return any(_is_re(part) for part in ast.walk(node))


def _is_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and _FIELDS.fullmatch(node.func.attr) is not None
    )


def _covered(site: str) -> bool:
    rows = {one for parser in PARSERS.values() for one in parser.patterns}
    return site in rows or f"{site.partition(':')[0]}:*" in rows or site in OWN


@pytest.mark.full
def test_every_pattern_of_the_code_is_in_the_table() -> None:
    """A new pattern belongs to a row of `PARSERS`, or to `OWN` if it sees nothing that others wrote."""
    found = sites()
    assert len(found) > 90
    assert [site for site in found if not _covered(site)] == []


def test_the_table_names_no_pattern_that_is_gone() -> None:
    found = sites()
    modules = set(found.values())
    for parser in PARSERS.values():
        for name in parser.patterns:
            module, _, pattern = name.partition(":")
            assert module in modules if pattern == "*" else name in found, name
    assert [site for site in OWN if site not in found] == []


@pytest.mark.full
def test_no_module_takes_a_regular_expression_by_another_way() -> None:
    """`from re import ...` would pass by the table."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.ImportFrom) and node.module == "re"), module
            assert not (isinstance(node, ast.Import) and any(a.name == "re" and a.asname for a in node.names)), module


def patterns_of(parser: Parser) -> Iterator[tuple[str, int]]:
    """The patterns of a row and their flags, for what can be seen in its modules."""
    for name in parser.patterns:
        module, _, wanted = name.partition(":")
        for key, value in vars(importlib.import_module(module)).items():
            for one in value.values() if isinstance(value, dict) and not key.startswith("__") else [value]:
                if isinstance(one, re.Pattern) and wanted in ("*", key):
                    text = one.pattern.decode("latin-1") if isinstance(one.pattern, bytes) else one.pattern
                    yield text, one.flags & (re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.ASCII)


def texts_for(parser: Parser, most: int | None = None) -> dict[str, Attack]:
    """The attacks on a parser, by name; at most so many, evenly chosen, of those that are made from patterns."""
    own = {f"{token!r} #{n}": make for token in parser.tokens for n, make in enumerate(attacks(token, (" ", "a")))}
    derived = {
        f"{token!r} of {pattern[:40]!r} #{n}": make
        for pattern, flags in patterns_of(parser)
        for token in beginnings(pattern, flags)
        for n, make in enumerate(attacks(token, fillers(pattern, flags)))
    }
    if most is None:
        return {**own, **derived}
    return {**_spread(own, most), **_spread(derived, most)}


def _spread(found: dict[str, Attack], most: int) -> dict[str, Attack]:
    """So many of them, one from each stretch."""
    return dict([*found.items()][:: -(-len(found) // most) or 1])


def took(parser: Parser, text: str, times: int = 1) -> float:
    """Seconds of this thread, the fewest of several tries."""
    best = float("inf")
    for _ in range(times):
        start = thread_time()
        parser(text)
        best = min(best, thread_time() - start)
    return best


def slow(parser: Parser, before: str, text: str) -> str | None:
    """Why a text takes too long, next to a shorter one of its kind."""
    most = (len(text) / len(before)) ** _POWER
    found = took(parser, text)
    if found <= _LEAST * most:
        return None
    first = max(took(parser, before, 3), _LEAST)
    if found > most * first:
        found = took(parser, text, 3)
    return f"{len(before):,}: {first:.3f} s, {len(text):,}: {found:.3f} s" if found > most * first else None


def check(parser: Parser, largest: int, most: int | None = None, times: int = _TIMES) -> list[str]:
    """The texts that take more time than in proportion, from 4 kB, or less, up to a size."""
    faults: list[str] = []
    for name, make in texts_for(parser, most).items():
        size = _SMALL * _TIMES // times
        while size * times <= largest:
            why = slow(parser, make(size), make(size * times))
            if why is not None:
                faults.append(f"{name}: {why}")
                break
            size *= times
    return faults


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """What a collection costs depends on all that a process holds, and is no part of what is measured."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", NAMES[:: sized(2, 1)])
def test_a_parser_takes_time_in_proportion_to_its_text(name: str) -> None:
    parser = PARSERS[name]
    assert check(parser, 16_000, most=sized(2, 5), times=_TIMES**2) == []


@pytest.mark.parametrize("name", NAMES[sized(1, 0) :: sized(2, 1)])
def test_a_megabyte_of_a_token_is_read_in_proportion(name: str) -> None:
    """On every change a tenth of it: the square of that is minutes still."""
    parser = PARSERS[name]
    for token in parser.tokens[:1]:
        repeated = next(attacks(token, ()))
        size = min(parser.largest, parser.usual, sized(100_000, parser.usual))
        assert slow(parser, repeated(size // _TIMES**2), repeated(size)) is None, token


@pytest.mark.full
def test_a_step_with_very_many_labels_is_read_in_proportion() -> None:
    """A megabyte: what is copied once for each label shows only beside very long texts."""
    assert slow(PARSERS["plan of steps"], "Step 1: " * 8_000, "Step 1: " * 125_000) is None


@pytest.mark.storm
@pytest.mark.parametrize("name", PARSERS)
def test_a_storm_of_texts_on_every_parser(name: str, scale: int) -> None:
    """Ten attacks for each step of `--storm-scale`, on 64,000 characters; from 16 on most of them, on a megabyte."""
    parser = PARSERS[name]
    assert check(parser, min(parser.largest, 64_000 * scale), most=10 * scale, times=_TIMES**2) == []
