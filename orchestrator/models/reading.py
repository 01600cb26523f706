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
from math import isfinite
from typing import Any, NoReturn

# -- thoughts ----------------------------------------------------------------------------------------------------------

_FAMILIES = (
    (r"<think(?:ing)?>", r"</think(?:ing)?>"),  # DeepSeek, Qwen and most others
    (r"<thought>", r"</thought>"),
    (r"<reasoning>", r"</reasoning>"),
    (r"<seed:think>", r"</seed:think>"),  # Seed-OSS
    (r"\[THINK]", r"\[/THINK]"),  # Magistral
    (r"◁think▷", r"◁/think▷"),  # Kimi
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Command A
    (  # gpt-oss; a call may follow in place of the answer
        r"<\|channel\|>analysis<\|message\|>",
        r"(?:<\|end\|>)?(?:<\|start\|>assistant)?(?:<\|channel\|>final<\|message\|>|(?=<\|channel\|>commentary))",
    ),
)
"""Tags before and after thoughts, by families of models."""
_MOST_HELD = 60
"""Maximum number of characters that may be the beginning of a tag."""
_groups = [(rf"(?P<o{n}>{opening})", rf"(?P<c{n}>{closing})") for n, (opening, closing) in enumerate(_FAMILIES)]
_tag = re.compile("|".join(tag for tags in _groups for tag in tags), re.IGNORECASE)
_opening = re.compile(rf"\s{{0,999}}(?:{'|'.join(opening for opening, _ in _groups)})", re.IGNORECASE)
_openings = ("<thinking>", *(re.sub(r"\(.*?\)\?|\\", "", opening).lower() for opening, _ in _FAMILIES))
_tag_begin = re.compile(r"[<\[◁](?=\||/?(?:t(?:h|\Z)|r(?:e|\Z)|s(?:e|\Z)|\Z)|\Z)", re.IGNORECASE)
"""The first characters of a tag, which may be incomplete at the end of the text."""
_blanks = re.compile(r"\s*")
_fence_line = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


def parted(text: str) -> tuple[str, str]:
    """Split a reply into its thoughts and the rest.

    Thoughts are blocks such as `<think>...</think>` (see `_FAMILIES`) at the start, the last of which may be unclosed;
    the text before a closing tag without an opening one; and later blocks that start on their own line, if text follows
    them. Tags within a sentence, in quotes or in a Markdown fence are part of the text.

    Returns:
        The thoughts, without surrounding white space, and the rest, which is the whole text if there are none.
    """
    first = next(_tags(text), None)
    if first is None:
        return "", text
    thoughts: list[str] = []
    begin = 0
    while opened := _opening.match(text, begin):
        closing = _closing(text, opened.end(), _family(opened))
        thoughts.append(text[opened.end() : len(text) if closing is None else closing.start()])
        if closing is None:
            return _joined(thoughts), ""
        begin = _behind_blanks(text, closing.end())
    if not thoughts and _closes(first) and text.lstrip()[:1] not in ("{", "[") and not _is_mentioned(text, first):
        thoughts, begin = [text[: first.start()]], _behind_blanks(text, first.end())
    rest = _without_blocks(text[begin:], thoughts)
    return _joined(thoughts), rest


def _joined(thoughts: Iterable[str]) -> str:
    return "\n\n".join(thought for thought in map(str.strip, thoughts) if thought)


def _tags(text: str, begin: int = 0) -> Iterator[re.Match[str]]:
    for first in _tag_begin.finditer(text, begin):  # many times faster than a search for all tags at each character
        tag = _tag.match(text, first.start()) if first.start() >= begin else None
        if tag is not None:
            begin = tag.end()
            yield tag


def _closes(tag: re.Match[str]) -> bool:
    return str(tag.lastgroup).startswith("c")


def _family(tag: re.Match[str]) -> str:
    return str(tag.lastgroup)[1:]


def _closing(text: str, begin: int, family: str) -> re.Match[str] | None:
    """Return the next closing tag of a family."""
    return next((tag for tag in _tags(text, begin) if tag.lastgroup == f"c{family}"), None)


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
    for tag in _tags(text):
        if opened is None:
            line = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
            if not _closes(tag) and not line.strip() and bisect(fences, tag.start()) % 2 == 0:
                opened = tag
        elif _closes(tag) and _family(tag) == _family(opened):
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

    __slots__ = ("_begun", "_family", "_held", "_over")

    def __init__(self) -> None:
        self._held = ""
        """Text received before it is clear what it belongs to."""
        self._family = ""
        """Family of the open tag; empty outside thoughts."""
        self._begun = self._over = False

    def feed(self, piece: str) -> tuple[str, str]:
        """Return the text and the thoughts that can be shown after the next piece."""
        if self._over or not piece:
            return piece, ""
        given, begin, thoughts = self._held + piece, 0, list[str]()
        self._held = ""
        while True:
            if self._family:
                closing = _closing(given, begin, self._family)
                if closing is None:
                    held = _tag_begin.search(given, max(len(given) - _MOST_HELD, begin))
                    end = len(given) if held is None else held.start()
                    self._held = given[end:]
                    return "", "".join([*thoughts, given[begin:end]])
                thoughts.append(given[begin : closing.start()])
                self._family, begin = "", closing.end()
            opened = _opening.match(given, begin)
            if opened is None:
                break
            self._begun, self._family, begin = True, _family(opened), opened.end()
        given = given[begin:]
        bare = given.lstrip()
        if len(given) <= 999 and any(tag.startswith(bare.lower()) for tag in _openings):
            self._held = given
            return "", "".join(thoughts)
        self._over = True
        return bare if self._begun else given, "".join(thoughts)

    def rest(self) -> tuple[str, str]:
        """Return the text and the thoughts that were held back, at the end of the reply."""
        held, self._held, self._over = self._held, "", True
        if self._family:
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
    found = list(_values(fence[2].strip() for fence in _fenced.finditer(bare)))
    if found and isinstance(found[0], dict):
        found += [value for value in _in_words(_fenced.sub(" ", bare)) if isinstance(value, dict)]
    found = found or _in_words(bare)
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


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits)


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} occurs twice in it")
    return found


def _json(*, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_distinct, strict=strict)


one_reading = _json(strict=True)
"""Decodes JSON that all parsers read alike: no name occurs twice in an object, and no number is infinite or NaN."""
lenient = _json(strict=False)
"""The same, and texts may contain line breaks and tabs."""


def _value(text: str) -> Any:
    """Return the value of a text that is JSON, or an object or a list as in Python."""
    try:
        return lenient.decode(text)
    except RecursionError:
        raise NoReading("is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and not text.startswith(("{", "[", '"')):
            raise NoReading("is not JSON") from None  # no position: it is a sentence
        if not text.startswith(("{", "[")) or len(text) > _LONGEST_LITERAL or "\\" in text:
            raise NoReading(f"is not JSON ({error})") from None
        fault = error
    try:
        tree = ast.parse(text, mode="eval")
        for part in ast.walk(tree):
            if isinstance(part, ast.Dict):
                _distinct([(ast.dump(key), None) for key in part.keys if key is not None])
        return lenient.decode(json.dumps(ast.literal_eval(tree), allow_nan=False))
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
            value, begin = lenient.raw_decode(text, opened.start())
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
_subject = re.compile(
    r"""[\W_]* (?:(?:so|thus|therefore|hence|okay|ok|sure)\b[,:]?\s+)? (?:
    (?:(?:the|my)\s+)? (?:(?:best|right|correct|final|only|next|chosen|selected|needed|most\s\w+)\s+)?
    (?:answer|category|choice|class|decision|function|label|option|score|tool)\b
    | (?:I(?:\s+would|\s+will|['’]d|['’]ll)?\s+)? (?:use|choose|pick|select|call|need)\b )""",
    re.IGNORECASE | re.VERBOSE,
)
"""The beginning of a sentence that states the choice, rather than a quotation or a condition."""
_negation = re.compile(
    r"""\b(?:not|never|no|none|cannot|without|except|but|instead|if|whether|unless|when|could|may|might|maybe|perhaps|
    says?|said|saying|tells?|told|asks?|asked|wants?|contains?|refuse[sd]?|text|instructions?)\b|n['’]t\b""",
    re.IGNORECASE | re.VERBOSE,
)
_sentence_ends = re.compile(r"[.!?;]\s")
_doubt = re.compile(
    r"""\A\W*(?:but|however|if|unless|only|except|although|though|provided)\b
    | (?:\A|[.!?;\n])\W{0,9}(?:but|however|wait|actually|instead|sorry|on\ssecond\sthought)\b
    | \b(?:refuse|change\smy\smind)\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words after a choice, or around it, that restrict it or take it back."""
_keys = re.compile("answer|category|choice|class|decision|(function|tool)(_name)?|label|name|option|score")
"""Keys of an object whose value is the choice."""
_after = re.compile(r"(?:[\"'`*_“”‘’»)\]>]*)(?:\s*\Z|\s*\n|\s*[:.,;!(\[–—-]|\s+(?:{})\b)", re.IGNORECASE)
_after_name = re.compile(_after.pattern.replace("{}", r"(?!)"))
_after_link = re.compile(_after.pattern.replace("{}", "tool|function|class|category|option|choice"), re.IGNORECASE)
_separators = re.compile(r"[\s_-]+")


def choice_in(text: str, choices: Mapping[str, str]) -> str | None:
    """Return the one choice that a text names.

    The name may be in quotes, marks or a fence, behind a label or a list marker, before its description or a reason,
    or the value of a key such as `choice`, `tool` or `name` of a JSON object; case, and blanks in place of `_` or `-`,
    make no difference. A name that the text quotes, negates, or makes depend on a condition is not its choice.

    Args:
        text: the reply.
        choices: the names, each with the description that the model was shown.

    Returns:
        The name; None if the text names no choice, or several.
    """
    words = parted(text)[1].strip()
    if words in choices:
        return words
    names = _Names(choices)
    before, words, after = _core(words)
    chosen = _chosen(words, names, choices)
    others = {names[one[0]] for one in _pattern(tuple(names.keyed)).finditer(f"{before}\n{after}")} - {chosen}
    return None if others or _negation.search(before) or _doubt.search(after) else chosen


def choice_alone(text: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a text consists of, or that is the value of `choice`, its object's only key, else None.

    Thoughts before it, one fence around it, quotes and case make no difference.
    """
    bare = parted(text)[1].strip()
    fence = _fenced.fullmatch(bare)
    bare = bare if fence is None else fence[2].strip()
    with suppress(ValueError, RecursionError):
        value = lenient.decode(bare)
        bare = value["choice"] if isinstance(value, dict) and value.keys() == {"choice"} else value
    return _Names(choices)[bare] if isinstance(bare, str) else None


class _Names(dict[str, str | None]):
    """Spelling -> the choice that it names: the one with exactly this name, else the only one with the same key."""

    def __init__(self, choices: Iterable[str]) -> None:
        super().__init__((name, name) for name in choices)
        self.keyed: dict[str, str | None] = {}
        for name in self:
            self.keyed[name_key(name)] = None if name_key(name) in self.keyed else name

    def __missing__(self, spelling: str) -> str | None:
        return self.keyed.get(name_key(spelling))


def _core(words: str) -> tuple[str, str, str]:
    """Return the content of the only fence, or the only object with the key of a choice, between the words around."""
    fences = [found for found in _fenced.finditer(words) if found[2].strip()]
    if len(fences) == 1:
        return words[: fences[0].start()], fences[0][2].strip(), words[fences[0].end() :]
    begin, end = words.find("{"), words.rfind("}") + 1
    for value in _values([words[begin:end]] if 0 <= begin < end else []):
        if begin == 0 or any(_keys.fullmatch(name_key(key)) for key in value):
            return words[:begin], words[begin:end], words[end:]
    return "", words, ""


def _chosen(words: str, names: _Names, choices: Mapping[str, str]) -> str | None:
    """Return the one choice that an object, a list or a text names."""
    for value in _values([words] if words.startswith(("{", "[")) else []):
        return _value_named(value, names)
    words = words.strip("_")
    found = list(_pattern(tuple(names.keyed)).finditer(words))
    if not found or words.startswith("{"):
        return None
    chosen, before = names[found[0][0]], words[: found[0].start()]
    after = words[found[0].end() :]
    described = " ".join(choices.get(chosen or "", "").split())
    following = " ".join(after.lstrip(" \t*_`:-–—(").split())
    if described and following.startswith(described):
        after, following = ": ", following[len(described) :]
        found = [found[0], *_pattern(tuple(names.keyed)).finditer(following)]
    if chosen is None or any(names[one[0]] != chosen for one in found) or _doubt.search(after):
        return None
    if _before.match(before):
        return chosen if _after_name.match(after) else None
    line = before.rpartition("\n")[2]
    if not line.strip() and before.rstrip().endswith(":"):
        line = before.rstrip().rpartition("\n")[2]
    line = line[max((end.end() for end in _sentence_ends.finditer(line)), default=0) :]
    linked = _subject.match(line) and _link.search(line) and not _negation.search(line)
    return chosen if linked and _after_link.match(after) else None


def _value_named(value: object, names: _Names) -> str | None:
    """Return the choice that a JSON value names, itself or under one of `_keys`; None if another value in it names a
    different choice.
    """
    if isinstance(value, list) and len(value) == 1:
        return _value_named(value[0], names)
    if not isinstance(value, dict):
        return names[str(value)] if isinstance(value, str) or type(value) is int else None
    named = {_value_named(item, names) for key, item in value.items() if _keys.fullmatch(name_key(key))} - {None}
    others = {names[item] for item in value.values() if isinstance(item, str)} - {None}
    return named.pop() if len(named) == 1 and others <= named else None


def name_key(name: str) -> str:
    """Return a name without regard to case, marks around it, and blanks in place of `_` or `-`."""
    return _separators.sub("_", name.strip(_AROUND).casefold())


@cache
def _pattern(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the names as whole words, and not parts of numbers, the longest first."""
    longest = sorted(filter(None, keys), key=len, reverse=True)
    names = "|".join(r"[\s_-]+".join(map(re.escape, key.split("_"))) for key in longest)
    return re.compile(rf"(?<!\w)(?<!\d[.,])(?<![-−](?=\d))(?:{names or '(?!)'})(?!\w|[.,]\d)", re.IGNORECASE)


# -- a label -----------------------------------------------------------------------------------------------------------


def labelled(text: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the kind and the words of the one labelled part of a text, such as `Final Answer: 6`.

    The label may be bold, in other case, on a line after others, followed by `:`, `=`, `-` or `is`, a heading, or a key
    of a JSON object. If the text begins with a label, everything after it counts, unless its kind is not the first kind
    and a later line has a label of the first kind.

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
    first = next(iter(labels.values()))
    ambiguous = parts[0][0] != first and any(kind == first for kind, _ in parts)
    if found[0].start() == 0 and not ambiguous and any(part != parts[0] for part in parts[1:]):
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
        (labels[name], item.strip() if isinstance(item, str) else json.dumps(item))
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
        (?: [:：=] | [-–—](?=\s) | (?P<is>is\b(?![ ](?:not|un\w+|still|yet|missing|to[ ]be)\b):?)
          | (?(head)(?=\n)|(?!)) | (?(closed)(?=\n)|(?!)) ) (?P<late>[*_`]{{1,3}}(?=\s|\Z))?[ \t]{{0,8}}""",
        re.IGNORECASE | re.MULTILINE | re.VERBOSE,
    )
