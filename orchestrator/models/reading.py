"""Reads what a model means from what it wrote: without thoughts, Markdown fences, quotes, labels and words around it.

A reply is read only if it has one reading. One with several, such as two different names, is not: its reader raises
`NoReading` or returns None, and the caller asks the model again. Nothing that a model wrote is evaluated.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

# -- thoughts ----------------------------------------------------------------------------------------------------------

_LONGEST_TAG = len("</thinking>")
_tag = re.compile(r"<(/?)(think|thinking)>", re.IGNORECASE)
_opening = re.compile(r"\s{0,999}<(think|thinking)>", re.IGNORECASE)
_blanks = re.compile(r"\s*")
_fence_line = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


def parted(text: str) -> tuple[str, str]:
    """Split a reply into its thoughts and the rest.

    Thoughts are blocks `<think>...</think>` or `<thinking>...</thinking>` at the start, the last of which may be
    unclosed; the text before a closing tag without an opening one; and later blocks that start on their own line, if
    text follows them. Tags within a sentence, in quotes or in a Markdown fence are part of the text.

    Returns:
        The thoughts, without surrounding white space, and the rest, which is the whole text if there are none.
    """
    tags = list(_tag.finditer(text))
    if not tags:
        return "", text
    thoughts: list[str] = []
    begin = 0
    while opened := _opening.match(text, begin):
        closing = _closing(text, opened.end(), opened[1])
        thoughts.append(text[opened.end() : len(text) if closing is None else closing.start()])
        if closing is None:
            return _joined(thoughts), ""
        begin = _behind_blanks(text, closing.end())
    if not thoughts and tags[0][1] and text.lstrip()[:1] not in ("{", "[") and not _is_mentioned(text, tags[0]):
        thoughts, begin = [text[: tags[0].start()]], _behind_blanks(text, tags[0].end())
    rest = _without_blocks(text[begin:], thoughts)
    return _joined(thoughts), rest


def _joined(thoughts: Iterable[str]) -> str:
    return "\n\n".join(thought for thought in map(str.strip, thoughts) if thought)


def _closing(text: str, begin: int, name: str) -> re.Match[str] | None:
    """Return the next closing tag of a name."""
    return next((tag for tag in _tag.finditer(text, begin) if tag[1] and tag[2].lower() == name.lower()), None)


def _behind_blanks(text: str, begin: int) -> int:
    found = _blanks.match(text, begin)
    return begin if found is None else found.end()


def _is_mentioned(text: str, tag: re.Match[str]) -> bool:
    """Return True if a closing tag is a word of a sentence, or in a fence."""
    before, after = text[: tag.start()][-1:], text[tag.end() :][:1]
    fences = len(_fence_line.findall(text, 0, tag.start()))
    return (before in tuple(" \t`'\"(") and after not in ("\n", "\r")) or fences % 2 == 1


def _without_blocks(text: str, thoughts: list[str]) -> str:
    """Return a text without the blocks that start on a line of their own; add those to the thoughts."""
    kept: list[str] = []
    begin, opened = 0, None
    fences = [fence.start() for fence in _fence_line.finditer(text)]
    for tag in _tag.finditer(text):
        if opened is None:
            line = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
            if not tag[1] and not line.strip() and bisect(fences, tag.start()) % 2 == 0:
                opened = tag
        elif tag[1] and tag[2].lower() == opened[2].lower():
            following = _behind_blanks(text, tag.end())
            if following == len(text):
                break
            thoughts.append(text[opened.end() : tag.start()])
            kept.append(text[begin : opened.start()])
            begin, opened = following, None
    return "".join([*kept, text[begin:]])


class ThoughtScreen:
    """Parts the thoughts at the start of a reply from its text while it arrives in pieces.

    Thoughts elsewhere are parted only when the reply is complete.
    """

    __slots__ = ("_begun", "_held", "_name", "_over")

    def __init__(self) -> None:
        self._held = ""
        """Text received before it is clear what it belongs to."""
        self._name = ""
        """Name of the open tag; empty outside thoughts."""
        self._begun = self._over = False

    def feed(self, piece: str) -> tuple[str, str]:
        """Return the text and the thoughts that can be shown after the next piece."""
        if self._over or not piece:
            return piece, ""
        given, begin, thoughts = self._held + piece, 0, list[str]()
        self._held = ""
        while True:
            if self._name:
                closing = _closing(given, begin, self._name)
                if closing is None:
                    keep = given.rfind("<", max(len(given) - _LONGEST_TAG + 1, begin))
                    end = len(given) if keep < 0 else keep
                    self._held = given[end:]
                    return "", "".join([*thoughts, given[begin:end]])
                thoughts.append(given[begin : closing.start()])
                self._name, begin = "", closing.end()
            opened = _opening.match(given, begin)
            if opened is None:
                break
            self._begun, self._name, begin = True, opened[1], opened.end()
        given = given[begin:]
        bare = given.lstrip()
        if len(given) <= 999 and any(tag.startswith(bare.lower()) for tag in ("<think>", "<thinking>")):
            self._held = given
            return "", "".join(thoughts)
        self._over = True
        return bare if self._begun else given, "".join(thoughts)

    def rest(self) -> tuple[str, str]:
        """Return the text and the thoughts that were held back, at the end of the reply."""
        held, self._held, self._over = self._held, "", True
        if self._name:
            return "", held
        return held.lstrip() if self._begun else held, ""


# -- fences and JSON ---------------------------------------------------------------------------------------------------

_fenced = re.compile(r"(`{3,}|~{3,})(?:[^\n`~]*\n|[ \t]*json\b)?(.*?)(?:\1|\Z)", re.DOTALL | re.IGNORECASE)
_LONGEST_LITERAL = 20_000
"""Maximum number of characters that are read as a Python literal."""
_MOST_TRIES = 100
"""Maximum number of brackets in a text at which a JSON value may begin."""
_bracket = re.compile(r"[{\[]")
_object_begins = re.compile(r"\{\s*(?:[\"'{\[]|\w+\s*:)|\[\s*[\"'{\[]")
_AROUND = " \t\r\n\"'`*.!“”‘’"


class NoReading(ValueError):
    """A text has no reading, or several."""


def unfenced(text: str) -> str:
    """Return the content of a text's only Markdown fence, else the text; without thoughts and surrounding white space.

    Words around the fence are left out.
    """
    bare = parted(text)[1].strip()
    fences = [found[2].strip() for found in _fenced.finditer(bare)]
    return fences[0] if len(fences) == 1 and fences[0] else bare


def json_in(text: str) -> Any:
    """Return the one JSON value in a text.

    It may stand in a Markdown fence, with or without words around it; an object or a list may also stand in a sentence,
    and be written as in Python, with single quotes or a trailing comma.

    Raises:
        NoReading: the text contains no JSON value, or several that differ.
    """
    bare = parted(text)[1].strip()
    try:
        return _value(bare.strip("`* ") if bare[:1] in ("`", "*") and bare[:3] != "```" else bare)
    except NoReading as error:
        fault = error
    fences = [value for found in _fenced.finditer(bare) for value in _values([found[2].strip()])]
    found = fences or _in_words(bare)
    if not found:
        raise NoReading(str(fault))
    if any(not _same(value, found[0]) for value in found[1:]):
        raise NoReading("contains several JSON values")
    return found[0]


def _same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _values(texts: Iterable[str]) -> Iterator[Any]:
    for text in texts:
        with suppress(NoReading):
            yield _value(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands in it twice")
    return found


_decoder = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_distinct, strict=False)


def _value(text: str) -> Any:
    """Return the value of a text that is JSON, or an object or a list as in Python."""
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise NoReading("is nested too deeply") from None
    except ValueError as error:
        if not text.startswith(("{", "[")) or len(text) > _LONGEST_LITERAL or "\\" in text:
            raise NoReading(f"is not JSON ({error})") from None
        fault = error
    try:
        tree = ast.parse(text, mode="eval")
        for part in ast.walk(tree):
            if isinstance(part, ast.Dict):
                _distinct([(ast.dump(key), None) for key in part.keys if key is not None])
        return _decoder.decode(json.dumps(ast.literal_eval(tree), allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise NoReading(f"is not JSON ({fault})") from None


def _in_words(text: str) -> list[Any]:
    """Return the objects in a text, else its lists; none if one is broken."""
    objects, lists, begin = list[Any](), list[Any](), 0
    for _ in range(_MOST_TRIES):
        opened = _bracket.search(text, begin)
        if opened is None:
            return objects or lists
        try:
            value, begin = _decoder.raw_decode(text, opened.start())
        except (ValueError, RecursionError):
            if _object_begins.match(text, opened.start()):
                closing = "}" if opened[0] == "{" else "]"
                last = list(_values([text[opened.start() : text.rfind(closing) + 1]]))
                return last if not objects else []
            begin = opened.end()
            continue
        if value:  # an empty pair of brackets in a sentence is not a value
            (objects if isinstance(value, dict) else lists).append(value)
    return []


# -- a choice ----------------------------------------------------------------------------------------------------------

_mark = r"[\s\"'`*_“”‘’«»()\[\]<>#\-+>•]"
_before = re.compile(rf"(?:{_mark}|\d{{1,3}}[.)]\s|\b(?:functions?|tools?)\.)*\Z", re.IGNORECASE)
_link = re.compile(r"(?:[:=]|\b(?:is|use|choose|pick|select|call|need))(?:\s+the)?[\s\"'`*_“”‘’(\[<]*\Z", re.IGNORECASE)
_negation = re.compile(r"\b(?:not|never|no|none|cannot|without|except|but|instead)\b|n['’]t\b", re.IGNORECASE)
_after = re.compile(r"(?:[\"'`*_“”‘’»)\]>]*)(?:\s*\Z|\s*\n|\s*[:.,;!(\[–—-]|\s+(?:{})\b)", re.IGNORECASE)
_after_name = re.compile(_after.pattern.replace("{}", r"(?!)"))
_after_link = re.compile(_after.pattern.replace("{}", "tool|function|class|category|option|choice"), re.IGNORECASE)
_separators = re.compile(r"[\s_-]+")


def choice_in(text: str, choices: Mapping[str, str], *, numbered: bool = False) -> str | None:
    """Return the one choice that a text names.

    The name may be in quotes, marks, a fence or JSON, behind a label or a list marker, and before its description or a
    reason; case, and blanks in place of `_` or `-`, make no difference.

    Args:
        text: the reply.
        choices: the names, each with the description that the model was shown.
        numbered: whether the model was shown the choices with the numbers 1, 2 and so on; a number is then a name.

    Returns:
        The name; None if the text names no choice, or several.
    """
    words = unfenced(text)
    if words in choices:
        return words
    names: dict[str, str | None] = {}
    for name in choices:
        names[_key(name)] = None if _key(name) in names else name
    if numbered:
        names.update({str(number): name for number, name in enumerate(choices, 1)})
    if words.startswith(("{", "[", '"')):
        named = {names.get(_key(one)) for one in _texts_in(words)} - {None}
        if named:
            return named.pop() if len(named) == 1 else None
    found = list(_pattern(tuple(names)).finditer(words.strip("_")))
    if not found:
        return None
    words, chosen, before = words.strip("_"), names[_key(found[0][0])], words.strip("_")[: found[0].start()]
    if len(found) > 1 and numbered and not re.search(r"\w", words[found[0].end() : found[1].start()]):
        del found[0]  # the number before the name
    after = words[found[0].end() :]
    described = " ".join(choices.get(chosen or "", "").split())
    following = " ".join(after.lstrip(" \t*_`:-–—(").split())
    if described and following.startswith(described):
        after, following = ": ", following[len(described) :]
        found = [found[0], *_pattern(tuple(names)).finditer(following)]
    if chosen is None or any(names[_key(one[0])] != chosen for one in found):
        return None
    line = before.rpartition("\n")[2] if before.strip() else ""
    if not line.strip() and before.rstrip().endswith(":"):
        line = before.rstrip().rpartition("\n")[2]
    if _before.match(line) and (not before.strip() or line.strip() or not _is_text(before)):
        return chosen if _after_name.match(after) else None
    linked = _link.search(line) is not None and _negation.search(line) is None
    return chosen if linked and _after_link.match(after) else None


def _is_text(before: str) -> bool:
    return re.search(r"\w", before) is not None


def _key(name: str) -> str:
    return _separators.sub("_", name.strip(_AROUND).casefold())


@cache
def _pattern(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the names as whole words, the longest first."""
    longest = sorted(filter(None, keys), key=len, reverse=True)
    names = "|".join(r"[\s_-]+".join(map(re.escape, key.split("_"))) for key in longest)
    return re.compile(rf"(?<!\w)(?:{names or '(?!)'})(?!\w)", re.IGNORECASE)


def _texts_in(words: str) -> list[str]:
    """Return the texts and whole numbers that a JSON value consists of; none if it is not JSON."""
    try:
        value = json_in(words)
    except NoReading:
        return []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return [str(item) for item in items if isinstance(item, str) or type(item) is int]


# -- a label -----------------------------------------------------------------------------------------------------------


def labelled(text: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the kind and the words of the one labelled part of a text, such as `Final Answer: 6`.

    The label may be bold, in other case, on a line after others, followed by `:`, `=`, `-` or `is`, a heading, or a key
    of a JSON object. If the text begins with a label, everything after it counts.

    Args:
        text: the reply.
        labels: label in lower case -> kind.

    Returns:
        The kind and the words; None if no label has words, or several labels have.
    """
    words = unfenced(text)
    if words.startswith("{"):
        return _keyed(words, labels)
    if len(words) > 1 and words[0] in "\"'" and words[-1] == words[0]:
        words = words[1:-1].strip()
    found = list(_label_pattern(tuple(labels)).finditer(words))
    if not found:
        return None
    ends = [*(match.start() for match in found[1:]), len(words)]
    parts = [_part(match, words[match.end() : end], labels) for match, end in zip(found, ends, strict=True)]
    if found[0].start() == 0 and any(part != parts[0] for part in parts[1:]):
        parts = [_part(found[0], words[found[0].end() :], labels)]
    return parts[0] if parts[0][1] and all(part == parts[0] for part in parts) else None


def _part(match: re.Match[str], words: str, labels: Mapping[str, str]) -> tuple[str, str]:
    words = words.strip()
    if match["mark"] and not match["closed"] and not match["late"]:
        words = words.removesuffix(match["mark"])
    if match["is"]:
        words = words.removesuffix(".")
    return labels[" ".join(match["label"].lower().split())], words.strip()


def _keyed(words: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    try:
        value = json_in(words)
    except NoReading:
        return None
    found = [
        (labels[name], str(item).strip())
        for key, item in (value.items() if isinstance(value, dict) else ())
        if (name := " ".join(re.split(r"[\s_-]+", key.lower()))) in labels and isinstance(item, str | int | float)
    ]
    return found[0] if len(found) == 1 and found[0][1] else None


@cache
def _label_pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    longest = sorted(labels, key=len, reverse=True)
    names = "|".join(r"[ \t]{1,8}".join(map(re.escape, label.split())) for label in longest)
    return re.compile(
        rf"""^[ \t]{{0,8}} (?:(?:[-+>•]|\*(?!\*)|\d{{1,3}}[.)])[ \t]{{1,8}})? (?P<head>\#{{1,6}}[ \t]{{0,8}})?
        (?P<mark>[*_`]{{1,3}})? (?:the[ ])? (?P<label>{names}) (?P<closed>[*_`]{{1,3}})?[ \t]{{0,8}}
        (?: [:：=] | [-–—](?=\s) | (?P<is>is\b(?![ ](?:not|un\w+)\b):?)
          | (?(head)(?=\n)|(?!)) | (?(closed)(?=\n)|(?!)) ) (?P<late>[*_`]{{1,3}}(?=\s|\Z))?[ \t]{{0,8}}""",
        re.IGNORECASE | re.MULTILINE | re.VERBOSE,
    )
