"""The laws of the forms: reading never raises and never makes a call up, and each part holds to the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.models import ToolCall
from orchestrator.models.text.forms import CallScreen, OfferedTool
from orchestrator.models.text.protocol import FORMS, FormName
from tests.models.text_samples import NAMES, OFFERS, call, calls, forged, made, offering, pieces_of, texts
from tests.support.sizes import sized

each_form = pytest.mark.parametrize("form", NAMES)


def any_text_can_be_read_and_calls_offered_tools_only(form: FormName, data: st.DataObject) -> None:
    text = data.draw(texts | forged(form))
    found = FORMS[form].parse(text, OFFERS, ended=data.draw(st.booleans()))
    assert {one.name for one in found.calls} <= {offer.name for offer in OFFERS}
    assert all(one.arguments is not None for one in found.calls)
    assert found.content == text if not found.calls else text.startswith(found.content)
    assert not (found.calls and found.unread)
    assert "\n" not in found.unread
    assert FORMS[form].parse(text, ()).calls == ()


def what_is_written_is_read_again(form: FormName, data: st.DataObject) -> None:
    said = data.draw(st.lists(calls, min_size=1, max_size=1 if form == "bracket" else 3))
    content = data.draw(st.sampled_from(["", "Let me see.", "Eins [1]\n\nzwei: {}"]))
    found = FORMS[form].parse(FORMS[form].render(content, said), offering(*said))
    assert made(found.calls) == made(said)
    assert (found.content, found.unread, found.cut) == (content, "", "")


def no_part_of_a_defused_text_is_a_call(form: FormName, data: st.DataObject) -> None:
    text = data.draw(forged(form) | texts)
    harmless = FORMS[form].defused(text, OFFERS)
    assert FORMS[form].parse(harmless, OFFERS).calls == ()
    start = data.draw(st.integers(0, len(harmless)))
    part = harmless[start : data.draw(st.integers(start, len(harmless)))]
    assert FORMS[form].parse(part, OFFERS).calls == ()
    assert FORMS[form].defused(harmless, OFFERS) == harmless


def a_defused_text_inside_of_a_call_makes_no_further_one(form: FormName, data: st.DataObject) -> None:
    harmless = FORMS[form].defused(data.draw(forged(form) | texts), OFFERS)
    said = FORMS[form].render("", [call("search", {"query": "PLACE"})])
    if form == "bracket":
        said = data.draw(st.sampled_from([said, "Action: search[PLACE]", "Action: search(PLACE)", "search[PLACE]"]))
    found = FORMS[form].parse(said.replace("PLACE", harmless), OFFERS)
    assert {one.name for one in found.calls} <= {"search"}


def what_is_shown_early_is_content_however_the_text_is_cut(form: FormName, data: st.DataObject) -> None:
    text = data.draw(texts | forged(form))
    pieces = pieces_of(text, data.draw(st.lists(st.integers(0, max(len(text), 1)), max_size=8)))
    screen = CallScreen(FORMS[form])
    content = FORMS[form].parse(text, OFFERS).content
    shown = ""
    for piece in pieces:
        shown += screen.feed(piece)
        assert content.startswith(shown)


def letter_by_letter_shows_as_much_as_all_at_once(form: FormName, data: st.DataObject) -> None:
    text = data.draw(texts) + "."  # not a blank, which is held back where it may be the end of the content
    whole, single = CallScreen(FORMS[form]), CallScreen(FORMS[form])
    assert "".join(map(single.feed, text)) == whole.feed(text)


LAWS: dict[Callable[[FormName, st.DataObject], None], int] = {
    any_text_can_be_read_and_calls_offered_tools_only: 25,
    what_is_written_is_read_again: 12,
    no_part_of_a_defused_text_is_a_call: 25,
    a_defused_text_inside_of_a_call_makes_no_further_one: 25,
    what_is_shown_early_is_content_however_the_text_is_cut: 25,
    letter_by_letter_shows_as_much_as_all_at_once: 10,
}
"""Each with how many examples are tried in the short form."""


@each_form
@pytest.mark.parametrize("law", LAWS)
def test_laws(law: Callable[[FormName, st.DataObject], None], form: FormName) -> None:
    _hold(law, form, sized(LAWS[law] // 3, LAWS[law]))


@each_form
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.storm
def test_laws_for_long(law: Callable[[FormName, st.DataObject], None], form: FormName, scale: int) -> None:
    _hold(law, form, 300 * scale)


def _hold(law: Callable[[FormName, st.DataObject], None], form: FormName, examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def held(data: st.DataObject) -> None:
        law(form, data)

    held()


@each_form
def test_a_call_that_is_not_defused_is_one_and_a_mark_is_all_that_is_added(form: FormName) -> None:
    text = FORMS[form].render("", [call("search", {"query": "x"})])
    assert made(FORMS[form].parse(text, OFFERS).calls) == [("search", {"query": "x"})]
    harmless = FORMS[form].defused(text, OFFERS)
    assert harmless != text
    assert harmless.replace("¦", "") == text.replace("|", "") if "|" in text else harmless.replace("¦", "") == text


@each_form
@pytest.mark.parametrize("times", [1, 2])
def test_nor_is_one_that_a_model_frees_of_its_escapes(form: FormName, times: int) -> None:
    text = "Look:\n" + FORMS[form].render("", [call("search", {"query": "x"})])
    shown = text
    for _ in range(times):
        shown = json.dumps({"page": shown}).replace("<", "\\u003c")
    freed = FORMS[form].defused(shown, OFFERS)
    for _ in range(times):
        freed = json.loads(freed)["page"]
    for part in (freed, freed.removeprefix("Look:\n")):
        assert FORMS[form].parse(part, OFFERS).calls == ()


def test_names_differ_in_the_case_of_ascii_letters_only() -> None:
    for tool, said, found in (("k", "K", 1), ("\u212a", "k", 0), ("k", "\u212a", 0), ("Größe", "größe", 0)):
        text = json.dumps({"name": said, "arguments": {}}, ensure_ascii=False)
        assert len(FORMS["json"].parse(text, (OfferedTool(tool),)).calls) == found
        assert FORMS["json"].parse(FORMS["json"].defused(text, (OfferedTool(tool),)), (OfferedTool(tool),)).calls == ()
    assert (
        FORMS["json"].parse('{"name": "a", "arguments": {}}', (OfferedTool("A"), OfferedTool("a"))).calls[0].name == "a"
    )
    assert FORMS["json"].parse('{"name": "aB", "arguments": {}}', (OfferedTool("AB"), OfferedTool("ab"))).calls == ()


@each_form
@pytest.mark.parametrize("name", ["a/b", 'q"', "b\\s", "größe", "𝒳", "K", "tab\t"])
def test_names_are_found_however_json_writes_them(form: FormName, name: str) -> None:
    offers = (OfferedTool(name),)
    written = "".join(f"\\u{unit:04x}" for unit in memoryview(name.encode("utf-16-le")).cast("H"))
    for escaped in (
        json.dumps(name),
        json.dumps(name, ensure_ascii=False),
        f'"{written}"',
        json.dumps(name).replace("/", "\\/"),
    ):
        for text in (f'{{"name": {escaped}, "arguments": {{}}}}', f'{{"name"\n:\t{escaped}, "arguments": {{}}}}'):
            if form == "json":
                assert [c.name for c in FORMS[form].parse(text, offers).calls] == [name]
            assert FORMS[form].parse(FORMS[form].defused(text, offers), offers).calls == ()


@each_form
def test_no_argument_can_hold_a_marker(form: FormName) -> None:
    """Servers may take one for their own, wherever it stands."""
    written = FORMS[form].render("", [call("search", {"query": "<|im_end|>"})])
    assert "im_end|>" in written
    assert "<|im_end" not in written


def test_a_text_stays_one_where_the_schema_takes_a_text() -> None:
    for schema, value in (
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ({"type": ["integer", "string"]}, "5"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5"),
        ({"type": 7, "anyOf": 7}, "5"),
        (True, "5"),
    ):
        found = FORMS["bracket"].parse("Action: f[5]", (OfferedTool("f", "", {"properties": {"x": schema}}),))
        assert made(found.calls) == [("f", {"x": value})]


def test_plain_text_is_shown_as_it_comes() -> None:
    for form in NAMES:
        screen = CallScreen(FORMS[form])
        shown = [screen.feed(piece) for piece in ("Hel", "lo, ", "you", "\n", "there")]
        # In the bracket form the first word may be the name of a tool, and the reply its call.
        first = ["", "", "Hello, you"] if form == "bracket" else ["Hel", "lo,", " you"]
        assert shown == [*first, "", "\nthere"]


@pytest.mark.parametrize(
    ("form", "held", "shown"),
    [
        ("json", "\n\n ``", "`json\n{}\n```"),
        ("json", "\n```js", "on"),
        ("bracket", "\n  **Action 1", " **: add[1]"),
        ("plugin", "<|action", "_start|>"),
        ("separator", " <|tool_calls|", ">[]"),
    ],
)
def test_what_may_become_a_call_is_held_back(form: FormName, held: str, shown: str) -> None:
    for rest, found in ((shown, ""), ("x y", held + "x y")):
        screen = CallScreen(FORMS[form])
        assert screen.feed("Well." + held) == "Well."
        assert screen.feed(rest) == found
        assert screen.feed(" More.") == (" More." if found else "")


_HOSTILE = {
    "spaces": " ", "lines": "\n", "brackets": "[", "braces": "{", "objects": '{"a":', "backslashes": "\\", "ticks": "`",
    "fences": "```\n", "fence and spaces": "```json\n ", "quotes": '"', "colons": ":", "colon and space": ": ",
    "tokens": "<|action_start|>", "plugins": "<|action_start|><|plugin|>{}<|action_end|>", "names": '"name":',
    "actions": "Action: ", "action lines": "Action: add[", "stars": "*", "observations": "Observation ", "digits": "1",
    "less": "<|",
}  # fmt: skip
_BEFORE = ("", "Action: search[", "Action: search\nAction Input: ", "<|tool_calls|>", "<|action_start|><|plugin|>",
           '{"name": "now", "arguments": {}}', "<|tool_calls|>[]", "```json\n")  # fmt: skip


@pytest.mark.parametrize("what", ["spaces", "backslashes", "brackets", "colon and space"])
def test_no_text_takes_long(what: str) -> None:
    """A form that took the square of the length would take minutes for these."""
    _read_all(["", "```json\n", "<|tool_calls|>[]"], what)


@pytest.mark.parametrize("what", _HOSTILE)
@pytest.mark.storm
def test_no_text_takes_long_wherever_it_stands(what: str) -> None:
    _read_all(_BEFORE, what)


def _read_all(beginnings: Sequence[str], what: str) -> None:
    begin = time.process_time()
    for before in beginnings:
        text = before + _HOSTILE[what] * (60_000 // len(_HOSTILE[what])) + "x"
        for form in FORMS.values():
            form.parse(text, OFFERS)
            form.edge(text, 0)
            form.defused(text, OFFERS)
    assert time.process_time() - begin < 10


def test_a_model_that_goes_on_with_blanks_holds_nothing_up() -> None:
    begin = time.process_time()
    screen = CallScreen(FORMS["bracket"])
    screen.feed("x")
    for _ in range(60_000):
        screen.feed("\n")
    assert screen.feed("y").endswith("\ny")
    assert time.process_time() - begin < 10


def test_what_begins_as_a_call_is_held_back_whatever_comes_in_the_same_piece() -> None:
    for pieces in (["add[\nAction: ."], [*"add[\nAction: ."], ["add[\n", "Action: ."]):
        screen = CallScreen(FORMS["bracket"])
        assert [screen.feed(piece) for piece in pieces] == [""] * len(pieces)


@pytest.mark.parametrize("levels", [90, 150, 2000, 100_000])
@each_form
def test_deep_nesting_is_no_call_and_no_error(form: FormName, levels: int) -> None:
    deep = '{"query":' * levels + "1" + "}" * levels
    text = FORMS[form].render("", [ToolCall(id="", name="search", arguments={"x": 0})]).replace('{"x": 0}', deep)
    found = FORMS[form].parse(text, OFFERS)
    assert len(found.calls) == (levels == 90)
    assert found.unread == ("" if levels == 90 else "JSON of more than 100 levels")
