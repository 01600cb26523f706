"""Arithmetic: expressions as trees, and the expression in a question (`What is 20+(2*4)? Calculate step by step.`).

Numbers are exact fractions, so 0.1 + 0.2 is 0.3 and whole numbers stay whole; only roots are inexact.

A question is split into numbers, operators, parentheses and words. Adjacent numbers and operators form an expression,
which is parsed with the usual precedence: `**` binds to the right and before a minus sign. Unclear questions are not
answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

OperationName: TypeAlias = Literal["add", "subtract", "multiply", "divide", "power"]

SIGNS: dict[OperationName, str] = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}
_BINDS: dict[OperationName, int] = {"add": 1, "subtract": 1, "multiply": 2, "divide": 2, "power": 4}
_NEGATIVE = 3
_DIGITS = 1000
"""Maximum number of digits in calculations."""
_SHOWN = 12
"""Significant digits of a fraction in an answer."""


class Unanswerable(Exception):
    """Raised when an expression has no value; the message says why, as a sentence without its full stop."""


class Number(Struct, frozen=True):
    """A number."""

    value: Fraction


class Operation(Struct, frozen=True):
    """Two terms and the operation on them."""

    name: OperationName
    left: Term
    right: Term


class Negative(Struct, frozen=True):
    """A term with a minus sign."""

    inner: Term


Term: TypeAlias = Number | Operation | Negative


def negative(term: Term) -> Term:
    """Return the negation of a term; that of a number is a number."""
    return Number(-term.value) if isinstance(term, Number) else Negative(term)


def value_of(term: Term) -> Fraction:
    """Return the value of a term.

    Raises:
        Unanswerable: it divides by zero, is too large, or is not a real number.
    """
    if isinstance(term, Number):
        return term.value
    if isinstance(term, Negative):
        return -value_of(term.inner)
    found = _operations[term.name](value_of(term.left), value_of(term.right))
    if max(abs(found.numerator), found.denominator).bit_length() > _DIGITS * 10 / 3:
        raise Unanswerable(f"the result has more than {_DIGITS} digits")
    return found


def _divide(left: Fraction, right: Fraction) -> Fraction:
    if right == 0:
        raise Unanswerable(f"{exact(left)} / 0 has no value: nothing can be divided by zero")
    return left / right


def _power(left: Fraction, right: Fraction) -> Fraction:
    if left == 0 and right < 0:
        raise Unanswerable(f"0 ** {exact(right)} has no value: nothing can be divided by zero")
    if right.denominator == 1:
        size = max(abs(left.numerator), left.denominator).bit_length() - 1
        if size * abs(right) > _DIGITS * 10 / 3:
            raise Unanswerable(f"{exact(left)} ** {exact(right)} has more than {_DIGITS} digits")
        return left**right.numerator
    if left < 0:
        raise Unanswerable(f"({exact(left)}) ** {exact(right)} is not a real number")
    try:
        return Fraction(str(float(left) ** float(right)))
    except (OverflowError, ValueError):
        raise Unanswerable(f"{exact(left)} ** {exact(right)} is too large") from None


_operations: dict[OperationName, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda left, right: left + right,
    "subtract": lambda left, right: left - right,
    "multiply": lambda left, right: left * right,
    "divide": _divide,
    "power": _power,
}


# -- working on a part -------------------------------------------------------------------------------------------


def ready(term: Term) -> Iterator[Operation]:
    """Yield the operations on plain numbers in a term, in the order of evaluation."""
    if isinstance(term, Negative):
        yield from ready(term.inner)
    elif isinstance(term, Operation):
        if isinstance(term.left, Number) and isinstance(term.right, Number):
            yield term
        else:
            yield from ready(term.left)
            yield from ready(term.right)


def first_operation(term: Term) -> Operation | None:
    """Return the operation that is evaluated first; None if there is none left."""
    return next(ready(term), None)


def contains(term: Term, part: Term) -> bool:
    """Return True if a term is, or contains, another."""
    if term == part:
        return True
    if isinstance(term, Negative):
        return contains(term.inner, part)
    return isinstance(term, Operation) and (contains(term.left, part) or contains(term.right, part))


def replaced(term: Term, part: Term, by: Number) -> Term:
    """Return the term with the first occurrence of a part replaced by a number."""
    if term == part:
        return by
    if isinstance(term, Negative):
        return negative(replaced(term.inner, part, by))
    if isinstance(term, Operation):
        if contains(term.left, part):
            return Operation(term.name, replaced(term.left, part, by), term.right)
        return Operation(term.name, term.left, replaced(term.right, part, by))
    return term


def advanced(term: Term, asked: Term | None, found: Fraction) -> Term:
    """Return the term after a tool or step has found a number.

    Args:
        asked: the term or part that the number was found for. A tool may have computed all of it or only its first
            operation; the number shows which. A number that is neither is taken for the first operation.
    """
    place = asked if asked is not None and contains(term, asked) else term
    first = first_operation(place)
    if first is None:
        return term
    try:
        whole = value_of(place)
    except Unanswerable:
        return replaced(term, first, Number(found))
    return replaced(term, place if near(found, whole) else first, Number(found))


def near(one: Fraction, other: Fraction) -> bool:
    """Return True if two numbers are equal up to floating-point rounding; whole ones are compared exactly."""
    if one.denominator == other.denominator == 1 and max(abs(one), abs(other)) < 2**53:
        return one == other
    return abs(one - other) <= abs(other) * Fraction(1, 10**9)


# -- text --------------------------------------------------------------------------------------------------------


def written(term: Term) -> str:
    """Return a term as text, with the parentheses that it needs: `20 + 2 * 4`."""
    return _written(term, 0)


def _written(term: Term, outer: int) -> str:
    if isinstance(term, Number):
        text = exact(term.value)
        return f"({text})" if term.value < 0 and outer > 0 else text
    if isinstance(term, Negative):
        text = f"-{_written(term.inner, _NEGATIVE)}"
        return f"({text})" if outer > 0 else text
    binds = _BINDS[term.name]
    # A power associates to the right, all others to the left; the other side needs parentheses.
    left = _written(term.left, binds + 1 if term.name == "power" else _left(term.left, binds))
    right = _written(term.right, binds if term.name == "power" else binds + 1)
    text = f"{left} {SIGNS[term.name]} {right}"
    return f"({text})" if binds < outer else text


def _left(term: Term, binds: int) -> int:
    """Return the precedence for the left operand: a negative number at the start of a sum or product needs no
    parentheses."""
    return 0 if isinstance(term, Number) else binds


def shown(value: Fraction) -> str:
    """Return a number as an answer shows it: whole ones in full, others with 12 significant digits."""
    return exact(value, _SHOWN)


def exact(value: Fraction, digits: int = 30) -> str:
    """Return a number for further calculations: with up to 30 significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    found = Context(prec=digits).divide(Decimal(value.numerator), Decimal(value.denominator)).normalize()
    # normalize() writes 100 as 1E+2; plain notation is used unless that would be mostly zeros.
    return format(found, "f") if -digits - 3 <= found.adjusted() <= digits else str(found).replace("E", "e")


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


_LONGEST_QUESTION = 20_000
"""Maximum length of a question."""
_LONGEST = 400
"""Maximum number of tokens of an expression."""
_DEEPEST = 60
_LONGEST_NUMBER = 1000
"""Maximum number of digits of a number without an exponent."""
_SAID = 10_000
"""Number of last characters of a tool's output that are searched for a number."""

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
_lone = re.compile(rf"(?<![\w.])-?(?:{_NUMBER})(?!\w|\.\d)")
_token = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<date>\d{{4}}-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])(?![\d-]) | \d+(?:\.\d+){{2,}})
  | (?P<times>(?<=[\d)\s])[xX](?=\s*[\d(.+-]))
  | (?P<number>{_NUMBER})(?P<tail>(?![xX]\s*[\d(])[^\W\d_][\w-]*)?
  | (?P<phrase>(?:multiplied\s+by|divided\s+by|(?:raised\s+)?to\s+the\s+power\s+of)\b)
  | (?P<word>[^\W\d_](?:[\w'’-]*\w)?)(?P<call>\()?
  | (?P<sign>\*\*|[-+*/^×·÷−])
  | (?P<paren>[()])
  | (?P<other>.)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS: Mapping[str, OperationName] = {
    "+": "add", "-": "subtract", "−": "subtract", "*": "multiply", "×": "multiply", "·": "multiply",
    "/": "divide", "÷": "divide", "**": "power", "^": "power",
}  # fmt: skip
_SAID_SIGNS: Mapping[str, OperationName] = {
    "plus": "add",
    "minus": "subtract",
    "times": "multiply",
    "over": "divide",
}
_PHRASES: Mapping[str, OperationName] = {"mul": "multiply", "div": "divide", "rai": "power", "to ": "power"}
_TRIVIAL = _words("what whats is the value result of calculate compute evaluate work out how much please answer")
_VERBS = _words(
    "add subtract multiply divide sum product difference quotient total average mean percent half double twice "
    "squared cubed square cube root sqrt modulo mod remainder factorial"
)
_UNKNOWN = frozenset("%!√π²³")

_n = rf"(-?(?:{_NUMBER}))"
_spoken_forms: tuple[tuple[str, OperationName, bool], ...] = (
    (rf"(?:add|(?:the\s+)?sum\s+of)\s+{_n}\s+(?:and|to|with)\s+{_n}", "add", False),
    (rf"subtract\s+{_n}\s+from\s+{_n}", "subtract", True),
    (rf"difference\s+(?:of|between)\s+{_n}\s+and\s+{_n}", "subtract", False),
    (rf"(?:multiply|product\s+of)\s+{_n}\s+(?:by|and|with)\s+{_n}", "multiply", False),
    (rf"(?:divide|quotient\s+of)\s+{_n}\s+(?:by|and)\s+{_n}", "divide", False),
)
"""Pattern, operation, and whether the numbers are named in reverse order."""


class NoArithmetic(Exception):
    """Raised when a text contains no arithmetic, or none that is understood; the message is a sentence about why."""


class _TermToken(Struct, frozen=True):
    kind: str
    """`number`, `sign`, `(`, `)`, `word` or `other`."""
    text: str
    said: bool = False
    """True if the sign was written as a word."""


def read(question: str) -> Term:
    """Return the arithmetic in a question.

    Raises:
        NoArithmetic: there is none, or its meaning is unclear.
    """
    if len(question) > _LONGEST_QUESTION:
        raise NoArithmetic(_unclear(question[:1_000], f"it has more than {_LONGEST_QUESTION:,} characters"))
    tokens = _tokens(question)
    words = {token.text.lower() for token in tokens if token.kind == "word"}
    runs = [run for run in map(_trimmed, _runs(tokens)) if any(token.kind == "number" for token in run)]
    sums = [run for run in runs if any(token.kind == "sign" for token in run[1:])]
    loose = len(runs) > len(sums)
    if runs and any(_unknown(token, before) for before, token in pairwise([_TermToken("word", ""), *tokens])):
        raise NoArithmetic(_unclear(question, "I know + - * / ** and parentheses only"))
    called = next((token.text for token in tokens if token.kind == "call"), None)
    if called is not None and runs:
        raise NoArithmetic(_unclear(question, f"I do not know the function {called!r}"))
    if not sums:
        return _spoken(question, runs, words)
    terms = [_TermParser(run).parse(question) for run in sums]
    if any(term != terms[0] for term in terms[1:]):
        raise NoArithmetic(_unclear(question, "it holds several calculations; ask for one"))
    if words & _VERBS and loose:
        raise NoArithmetic(_unclear(question, "write it with + - * / ** and parentheses"))
    return terms[0]


def _unknown(token: _TermToken, before: _TermToken) -> bool:
    """Return True if a token is an operation that is not supported; `!` only after a number."""
    return token.text in _UNKNOWN and (token.text != "!" or before.kind in ("number", ")"))


def _spoken(question: str, runs: list[list[_TermToken]], words: set[str]) -> Term:
    """Parse a calculation without a sign: `add 3 and 4`; or a single number."""
    for pattern, name, swapped in _spoken_forms:
        match = re.search(rf"\b{pattern}(?![\w.]*\d)", question, re.IGNORECASE)
        if match is not None and len(runs) == 2:
            numbers = [_fraction(match[1]), _fraction(match[2])]
            if None in numbers:
                raise NoArithmetic(_unclear(question, "a number is too long"))
            left, right = (Number(number) for number in numbers if number is not None)
            return Operation(name, right, left) if swapped else Operation(name, left, right)
    if len(runs) == 1 and words <= _TRIVIAL:
        return _TermParser(runs[0]).parse(question)
    if len(runs) > 1:
        raise NoArithmetic(_unclear(question, "it has numbers but does not say with + - * / ** what to do with them"))
    raise NoArithmetic(f"I only do arithmetic, and there is none in {_quoted(question)}.")


def number_in(value: object) -> Fraction | None:
    """Return the number in a tool's output, if there is exactly one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return Fraction(value) if isinstance(value, int) else _fraction(repr(value))
    if isinstance(value, str):
        text = value[-_SAID:].replace("−", "-").rpartition("=")[2]  # the last one of `20 + 8 = 28`
        found = _lone.findall(text)
        return _fraction(found[0]) if len(found) == 1 else None
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        numbers = [number for number in map(number_in, value) if number is not None]
        return numbers[0] if len(numbers) == 1 else None
    return None


def _fraction(text: str) -> Fraction | None:
    """Return the number that a text represents; None if it is not a number, or too long."""
    digits, _, power = text.replace(",", "").lower().partition("e")
    if len(power) > 5 or len(digits) + abs(int(power or 0)) > _LONGEST_NUMBER:
        return None
    try:
        return Fraction(text.replace(",", ""))
    except ValueError:
        return None


def _unclear(question: str, why: str) -> str:
    return f"I only do arithmetic, and cannot read {_quoted(question)}: {why}."


def _quoted(question: str) -> str:
    line = " ".join(question.split())
    return repr(line if len(line) <= 120 else line[:120] + "…")


# -- tokens ------------------------------------------------------------------------------------------------------


def _tokens(text: str) -> list[_TermToken]:
    found: list[_TermToken] = []
    for match in _token.finditer(text):
        kind = match.lastgroup
        word = match["word"]
        if match["space"]:
            continue
        if match["number"] and match["tail"] is None:
            found.append(_TermToken("number", match["number"].replace(",", "")))
        elif match["times"]:
            found.append(_TermToken("sign", "*"))
        elif match["sign"]:
            found.append(_TermToken("sign", match["sign"]))
        elif match["phrase"]:
            name = _PHRASES[match["phrase"][:3].lower()]
            found.append(_TermToken("sign", {"multiply": "*", "divide": "/", "power": "**"}[name], said=True))
        elif word and word.lower() in _SAID_SIGNS:
            name = _SAID_SIGNS[word.lower()]
            sign = next(sign for sign, of in _SIGNS.items() if of == name)
            found.append(_TermToken("sign", sign, said=True))
            if match["call"]:
                found.append(_TermToken("(", "("))
        elif word:
            found.append(_TermToken("call" if match["call"] else "word", word))
            if match["call"]:
                found.append(_TermToken("(", "("))
        elif kind == "paren":
            adjacent = match.start() > 0 and (text[match.start() - 1].isdigit() or text[match.start() - 1] == ")")
            if match["paren"] == "(" and adjacent and found and found[-1].kind in ("number", ")"):
                found.append(_TermToken("sign", "*"))  # 2(3 + 4)
            found.append(_TermToken(match["paren"], match["paren"]))
        else:
            found.append(_TermToken("other", match[0]))
    return found


def _runs(tokens: list[_TermToken]) -> list[list[_TermToken]]:
    """Return the runs of numbers, signs and parentheses between words."""
    runs: list[list[_TermToken]] = [[]]
    for token in tokens:
        if token.kind in ("number", "sign", "(", ")"):
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _trimmed(run: list[_TermToken]) -> list[_TermToken]:
    """Remove words for signs at its ends (`repeat it 3 times`) and the parentheses of the sentence around."""
    if len(run) > _LONGEST:
        return run  # too long to be parsed
    while run and run[0].said and run[0].text != "-":
        run = run[1:]
    while run and run[-1].said:
        run = run[:-1]
    opened = sum(token.kind == "(" for token in run) - sum(token.kind == ")" for token in run)
    while opened > 0 and run and run[0].kind == "(":
        run, opened = run[1:], opened - 1
    while opened < 0 and run and run[-1].kind == ")":
        run, opened = run[:-1], opened + 1
    return run


class _TermParser:
    """Recursive descent over one run of tokens."""

    def __init__(self, tokens: list[_TermToken]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def parse(self, question: str) -> Term:
        if len(self.tokens) > _LONGEST:
            raise NoArithmetic(_unclear(question, "it is too long"))
        try:
            found = self._sum()
        except _Unreadable as error:
            raise NoArithmetic(_unclear(question, str(error))) from None
        if self.at < len(self.tokens):
            raise NoArithmetic(_unclear(question, f"a sign is missing before {self.tokens[self.at].text!r}"))
        return found

    def _sum(self) -> Term:
        found = self._product()
        while (name := self._sign("add", "subtract")) is not None:
            found = Operation(name, found, self._product())
        return found

    def _product(self) -> Term:
        found = self._signed()
        while (name := self._sign("multiply", "divide")) is not None:
            found = Operation(name, found, self._signed())
        return found

    def _signed(self) -> Term:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Unreadable("it is nested too deeply")
        try:
            if self._sign("subtract") is not None:
                return negative(self._signed())
            if self._sign("add") is not None:
                return self._signed()
            base = self._atom()
            if self._sign("power") is not None:
                return Operation("power", base, self._signed())
            return base
        finally:
            self.depth -= 1

    def _atom(self) -> Term:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None:
            raise _Unreadable("it ends where a number is expected")
        self.at += 1
        if token.kind == "number":
            number = _fraction(token.text)
            if number is None:
                raise _Unreadable("a number is too long")
            return Number(number)
        if token.kind != "(":
            raise _Unreadable(f"a number is missing before {token.text!r}")
        found = self._sum()
        if self.at >= len(self.tokens) or self.tokens[self.at].kind != ")":
            raise _Unreadable("a parenthesis is not closed")
        self.at += 1
        return found

    def _sign(self, *names: OperationName) -> OperationName | None:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or token.kind != "sign" or _SIGNS[token.text] not in names:
            return None
        self.at += 1
        return _SIGNS[token.text]


class _Unreadable(Exception):
    pass
