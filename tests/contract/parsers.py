"""Every parser, pattern and check that sees text of others: models, tools, servers, files, pages.

A row says what reads, which patterns of the code belong to it, and what its grammar is made of beside what its patterns
show. `test_parsers.py` feeds each of them texts of many sizes. A pattern that has no row fails a test.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias, get_args

from orchestrator.cli.output import error_text
from orchestrator.errors import AgentError, GraphError, ModelError, ToolError
from orchestrator.evaluation.scorers import read_verdict
from orchestrator.graph.edges import parse_edges
from orchestrator.graph.text.source import read_json, read_yaml
from orchestrator.graph.text.types import parse_type
from orchestrator.kernel.requests import Requests
from orchestrator.models import anthropic, responses
from orchestrator.models.base import ModelRequest
from orchestrator.models.base import _in_words as number_in_words
from orchestrator.models.chat import Assembly, EventDecoder, parsed, reply_of, reply_to, unfinished
from orchestrator.models.chat.ends import end_of
from orchestrator.models.chat.reply import read_arguments
from orchestrator.models.chat.request import wire_names, with_fit_ids
from orchestrator.models.http_errors import quoted
from orchestrator.models.http_errors import words_of as words_of_error
from orchestrator.models.logprobs import TokenLogprob, probability
from orchestrator.models.messages import Image, Reply, ToolCall, tool_result, user
from orchestrator.models.offline import OfflineModel
from orchestrator.models.offline.arithmetic import NoArithmetic, number_in, read
from orchestrator.models.offline.planning import _words
from orchestrator.models.probe import _FAULT, _TOKENS, _WORD
from orchestrator.models.profile import Profile, profile_of
from orchestrator.models.reading import NoReading, ThoughtScreen, choice_in, json_in, labelled
from orchestrator.models.reading import parted as parted_thoughts
from orchestrator.models.text.code import CodeForm
from orchestrator.models.text.forms import CallScreen, Form, OfferedTool
from orchestrator.models.text.protocol import FORMS
from orchestrator.nodes.choose_args import _given
from orchestrator.nodes.extract import find_answer, last_number
from orchestrator.nodes.judge import Judge
from orchestrator.nodes.plan import Form as PlanForm
from orchestrator.nodes.plan import plan_in
from orchestrator.nodes.planned_calls import arguments_of
from orchestrator.nodes.plans import PlanFault
from orchestrator.nodes.plans.blueprint import PlannedCall, needs_of, quoted_references, read_blueprint
from orchestrator.nodes.plans.step_list import read_steps
from orchestrator.nodes.plans.tasks import read_tasks
from orchestrator.nodes.respond import answer_in, thought_in
from orchestrator.nodes.route import GuardFault, read_guard
from orchestrator.nodes.think import _before_made_up
from orchestrator.protocols.conversation import _LAST_WORD
from orchestrator.redaction import redact, redacted
from orchestrator.render.html.page import embedded
from orchestrator.render.html.step_data import CallData, Tracebacks, clean
from orchestrator.render.terminal import excerpts
from orchestrator.stores.payloads import holes, split
from orchestrator.stores.postgres.statements import escaped, unescaped
from orchestrator.stores.requests import words as words_of
from orchestrator.strategies.llm_compiler import verdict_in
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.browser import service, tabs
from orchestrator.tools.builtin.files import Text, numbered
from orchestrator.tools.builtin.files.directory import parts_of
from orchestrator.tools.builtin.terminal import BoundedOutput
from orchestrator.tools.builtin.web_fetch import _HOST, guard
from orchestrator.tools.builtin.web_fetch.client import text_of
from orchestrator.tools.builtin.web_fetch.readable import readable
from orchestrator.tools.builtin.web_search import Hit, _clean
from orchestrator.tools.docstrings import read_docstring, written_type
from orchestrator.tools.mcp import untrusted
from orchestrator.tools.mcp.servers import refuse_secrets, servers_of, without_comments
from orchestrator.tools.mcp.stdio import Lines, id_of
from orchestrator.tools.mcp.untrusted import checked_schema, names_of
from orchestrator.tools.result import Blob, placeholder_of
from orchestrator.tools.tool import checked
from orchestrator.tools.validation import coerced, faults
from orchestrator.views import safe_text
from orchestrator.views.tracebacks import place_of, trace_data, traceback_parts
from orchestrator.visible import barred, exact, narrow, shown
from orchestrator.web import guard as request_guard
from orchestrator.web.screens.compare import lines_of

Reader: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Parser:
    """One way in for text of others."""

    read: Reader
    patterns: tuple[str, ...] = ()
    """`module:name` of what belongs to it; `module:*` is all of a module, `module:function()` what a function makes."""
    tokens: tuple[str, ...] = ()
    """What its grammar is made of, beside what the patterns show."""
    errors: tuple[type[Exception], ...] = ()
    """What it refuses text with."""

    largest: int = 1_000_000
    """Characters that it is fed; fewer for what goes through a text sign by sign in Python."""
    usual: int = 1_000_000
    """Characters that it is fed outside of the storm."""
    browser: bool = False
    """Whether its modules need the extra `browser`."""

    def __call__(self, text: str) -> None:
        """Let it read."""
        with suppress(*self.errors):
            self.read(text)


_OFFERS = [
    OfferedTool("search", "", {"properties": {"query": {"type": "string"}}, "required": ["query"]}),
    OfferedTool("add", "", {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}),
]
OFFERED = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
_OBJECT = {
    "type": "object",
    "properties": {
        "a": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "object"}, {"type": "integer"}]},
        "b": {"type": "string", "pattern": "^(a+)+$", "enum": ["x"]},
    },
    "required": ["a", "b"],
}
_JSON = ('{"a":', "[", "{", '"', "\\", '"a":1,', "1,", "1e", "]", "}", "\\u00", "null,", "[[]],")
_MARKS = ("|", "{", "}", "<", ">", "&", '"', "'", "`", "\\", "#", "*", "_", "~", "$", "%")


def _form(name: str) -> Reader:
    form: Form = CodeForm() if name == "code" else FORMS[name]

    def everything(text: str) -> None:
        form.parse(text, _OFFERS)
        form.parse(text, _OFFERS, ended=False)
        form.defused(text, _OFFERS)
        form.edge(text, 0)
        screen = CallScreen(form)
        for start in range(0, len(text), 512):
            screen.feed(text[start : start + 512])

    return everything


def _answers(text: str) -> None:
    for form in ("text", "number", "choice", "yes_no"):
        find_answer(text, form)
        find_answer(text, form, announced=True)
    last_number(text)


def _inputs(text: str) -> None:
    for offer in _OFFERS:
        arguments_of(PlannedCall(id="E1", tool=offer.name, input=text), {}, dict(offer.parameters))
    needs_of(text)
    quoted_references(text)


def _chosen_arguments(text: str) -> None:
    tool = next(iter(tools_from_ref("arithmetic")))
    for finish in ("stop", "length"):
        with suppress(AgentError):
            _given(Reply(text=text, finish=finish), tool)


def _plans(text: str) -> None:
    for form in get_args(PlanForm):
        with suppress(PlanFault):
            plan_in(text, form)


def _hosts(text: str) -> None:
    request_guard._HOST.fullmatch(text.lower())
    request_guard._ORIGIN.fullmatch(text.lower())
    request_guard._with_port(text, "80")


def _labels(text: str) -> None:
    thought_in(text)
    answer_in(text)
    answer_in(text, finish="Finish")


def _events(text: str) -> None:
    data = text.encode()
    for source in (data, b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"):
        events = EventDecoder()
        for start in range(0, len(source), 4096):
            for one in events.feed(source[start : start + 4096]):
                parsed(one)
        for one in events.rest():
            parsed(one)


def _readings(text: str) -> None:
    parted_thoughts(text)
    choice_in(text, {"add": "Add.", "web_search": "Search."})
    number_in_words(int, text)
    labelled(text, {"answer": "answer", "final answer": "answer"})
    screen = ThoughtScreen()
    for start in range(0, len(text), 512):
        screen.feed(text[start : start + 512])
    with suppress(NoReading):
        json_in(text)
    probability([TokenLogprob(text, 0, {})], text, "add", ("add", "subtract"))


def _deltas(text: str) -> None:
    assembly = Assembly()
    for start in range(0, len(text), 64):
        piece = text[start : start + 64]
        call = {"index": 0, "id": f"c{start}", "function": {"arguments": piece}}
        assembly.add({"choices": [{"delta": {"content": piece, "tool_calls": [call]}}]})
    assembly.answer()


def _small_pieces(text: str) -> None:
    """The arguments of one call, cut after each bracket, under a new id and a longer name each time."""
    assembly = Assembly()
    pieces = ['{"a":[1', *re.split(r"(?<=\})", text)]
    for number, piece in enumerate(pieces):
        call = {"index": 0, "id": f"c{number}", "function": {"arguments": piece}}
        assembly.add({"choices": [{"delta": {"tool_calls": [call]}}]})
    for piece in pieces:
        assembly.add({"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"name": piece}}]}}]})
    assembly.answer()


def _answer_of_a_server(text: str) -> None:
    message = {"content": text, "tool_calls": [{"function": {"name": "a", "arguments": text}}]}
    reply_of(json.dumps({"choices": [{"message": message}]}), "m")
    read_arguments(text)
    quoted(text)
    words_of_error(text, 500)
    words_of_error("<" + text, 500)
    for pattern in (_TOKENS, _WORD, _FAULT):
        pattern.search(text)
    request = ModelRequest.of("?", tools=[OFFERED, {"function": {"name": text}}])
    for written in (text, f"<tool_call>{text}>", f"```json\n{text}\n```"):
        unfinished(Reply(text=written, finish="stop"), request, Profile())
    end_of(text, Profile())
    wire_names(request)
    with suppress(ModelError):
        reply_to("data: " + text, "m")
    reply_of(text, "m")


def _ids(text: str) -> None:
    for fit in (anthropic._IDS, responses._IDS):
        with_fit_ids([tool_result(ToolCall(id=text, name="a", arguments={}), "b")], fit)


def _streamed(text: str) -> None:
    _LAST_WORD.search(text)


def _letters(text: str) -> None:
    for start in ("", "<meta ", "<?xml "):
        text_of((start + text).encode(), "", markup=True)


def _shown(text: str) -> None:
    safe_text.plain(text)
    safe_text.lines(text)
    safe_text.told(text)
    safe_text.told(text, 80)
    clean({"text": text, "password": text})
    embedded(text)
    excerpts.text(text)
    excerpts.tail(text, 80)


def _visible(text: str) -> None:
    exact(text)
    shown(text)
    narrow(text)
    barred(text)


def _redaction(text: str) -> None:
    redact(text)
    redacted({"text": text, "password": text, text[:40]: text[:40]})


def _server_lines(text: str) -> None:
    data = text.encode()
    lines = Lines(1 << 20)
    for start in range(0, len(data), 4096):
        for _ in lines.feed(data[start : start + 4096]):
            pass
    id_of(data[:400], data[-400:])
    with suppress(ValueError, RecursionError):
        untrusted.messages_in(data, 1)
    untrusted.plain(text)
    kept = untrusted.Tail(("secret",))
    kept.add(data)
    assert len(kept.text) < 10_000


def _schema(text: str) -> None:
    for schema in (
        {"type": "object", "properties": {"a": {"type": "string", "pattern": text, "description": text}}},
        {"type": "object", "properties": {text: {"enum": [text]}}, "required": [text]},
    ):
        with suppress(ValueError):
            checked_schema(schema)
    names_of([text, text + "a"])


def _validation(text: str) -> None:
    for value in ({"a": text, "b": text}, {text: text}):
        found = coerced(value, _OBJECT, _OBJECT)
        faults(found, _OBJECT, _OBJECT)


def _files(text: str) -> None:
    file = Text.of(text.encode())
    with suppress(ToolError):
        file.replaced(text[:20], "new")
    with suppress(ToolError):
        file.replaced(text[:20].replace(" ", "\n ") + " no", "new")
    with suppress(ToolError):
        file.inserted(1, text[:100])
    numbered(file.lines(), 1, 10_000)


def _address(text: str) -> None:
    guard.shown_address(text)
    _HOST.fullmatch(text)
    guard.Guard().url(f"http://a/{text}")


def _content(text: str) -> None:
    with suppress(ValueError):
        placeholder_of(Image(url="data:" + text))
    with suppress(ValueError):
        Blob(data=base64.b64encode(text.encode()).decode(), media_type=text)


def _offline(text: str) -> None:
    number_in(text)
    _words(text)
    asyncio.run(OfflineModel().complete([user(text)]))


def _terminal(text: str) -> None:
    kept = BoundedOutput(10_000)
    data = text.encode()
    for start in range(0, len(data), 512):
        kept.add(data[start : start + 512])
    kept.text()


def _browser_page(text: str) -> object:
    found = tabs.quoted(text), tabs.elements(text), tabs.same(text, text + "x")
    return *found, tabs.file_name(text)


def _proxied(text: str) -> object:
    data = text.encode(errors="replace")
    return service._is_interim(data), service._path(data)


def _payloads(text: str) -> None:
    data = text.encode()
    split(data)
    for stored in (data, b"~" + data, b"~1+1" + data):
        with suppress(ValueError):
            holes(stored)


def _search_results(text: str) -> None:
    _clean(Hit(text, text, text))


PARSERS: Mapping[str, Parser] = {
    "redaction": Parser(
        _redaction,
        ("orchestrator.redaction:*",),
        ("-eyJaaaaaaaa", "eyJaaaaaaaa.", "a://b:", "password=", 'token="', "Bearer ", "-----BEGIN PRIVATE KEY-----"),
    ),
    "shown text": Parser(
        _shown,
        (
            "orchestrator.views.safe_text:*",
            "orchestrator.render.html.page:_UNSAFE",
            "orchestrator.render.terminal.excerpts:*",
        ),
        ("\x1b[", "\x1b]0;", "\u0301", "\u202e", "\U000e0041", "a" * 50 + " "),
    ),
    "tracebacks": Parser(
        lambda text: (place_of(text), traceback_parts(text), trace_data(text)),
        ("orchestrator.views.tracebacks:*",),
        (
            '  File "',
            '", line 1',
            ", in a\n",
            "/orchestrator/tools/",
            "  behind it, in libraries:\n",
            "Traceback (most ",
        ),
    ),
    "payloads of records": Parser(
        _payloads,
        ("orchestrator.stores.payloads:*",),
        (",1+1", "1+1,", "1", "+", '"', "\\", '\\"', '"' + "a" * 40_000 + '"', "sha256:", "\n"),
    ),
    "text made visible": Parser(
        _visible,
        ("orchestrator.visible:*",),
        ("\u200b", " ", "\\u200b", "\n", "\t", "\u0301", "\u200d", "\U000e0041", "\\", "a\u0301", "\U0001f468\u200d"),
        largest=100_000,
        usual=40_000,
    ),
    "guards": Parser(
        read_guard,
        ("orchestrator.nodes.route:_TOKEN",),
        ("a", '"', "'", '"' * 3, "'" * 3, 'r"', "b'", "\\", "// ", "1.", "(", "x.all(", " && "),
        (GuardFault,),
    ),
    "plan of steps": Parser(
        read_steps,
        ("orchestrator.nodes.plans.step_list:*",),
        ("<" + " " * 50, "1. a\n", "1. ", "- ", "Step 1: ", "```\n", "a\n\n", "# a\n", "1. a. 2. b. "),
        (PlanFault,),
    ),
    "plan of tasks": Parser(
        read_tasks,
        ("orchestrator.nodes.plans.tasks:*",),
        ("1. ", "$1", "${1}", "join()", "Thought:", "1. a(", ")", "\n"),
        (PlanFault,),
    ),
    "verdict of a joiner": Parser(
        verdict_in,
        ("graphs.llm_compiler:*",),
        ("Action: ", "Finish(", "Replan[", "Thought:", "Answer:", "</think>", "```", "\n"),
    ),
    "answers that a model made up": Parser(
        _before_made_up,
        ("orchestrator.nodes.think:*",),
        ("Follow up:", "\nIntermediate answer:", "So the final answer is:", "\n"),
    ),
    "plan of calls": Parser(
        read_blueprint,
        ("orchestrator.nodes.plans.blueprint:*",),
        ("#E1 = a[", "#E1 = a[b]\n", "Plan: a\n", '#E1 = a["', "#E1", "a[b] and "),
        (PlanFault,),
    ),
    "inputs of planned calls": Parser(
        _inputs,
        ("orchestrator.models.text.inputs:*",),
        (*_JSON, "a=", "a=1, ", "#E1, ", "(", "'", "```", "```json\n{"),
        (AgentError,),
        usual=200_000,
    ),
    "answers": Parser(
        _answers,
        ("orchestrator.nodes.extract:*",),
        ("The answer is ", "So the answer is 1. ", "1,000", "- ", "Mr. ", "yes ", '"'),
        usual=200_000,
    ),
    "verdicts of judges": Parser(
        read_verdict,
        ("orchestrator.evaluation.scorers:*",),
        (*_JSON, "yes", "no: ", "Is it right? ", "the answer is ", "the answer a b is not ", "so but ", "Score: 1\n"),
        usual=200_000,
    ),
    "judgements": Parser(
        Judge(rubric={"correct": "it is right", "brief": "it is short"})._read,
        ("orchestrator.nodes.judge:*",),
        (*_JSON, "Feedback: ", "Scores: ", "correct: 5", ", brief = 4/5", "\n- ", "1. ", "4 out of 5"),
        (AgentError,),
        usual=200_000,
    ),
    "commands in messages": Parser(
        lambda text: error_text(ValueError(text), "runs.db"),
        ("orchestrator.cli.output:*",),
        ("`orchestrator show ", "`orchestrator why 'a`", "`", "'", "\\", "got ", "got {1: (int)", "[Errno 1"),
        usual=200_000,
    ),
    "labels": Parser(
        _labels,
        ("orchestrator.nodes.respond:*", "orchestrator.nodes.conversation:*"),
        ("Thought: ", "Answer: ", "Finish[", "*"),
    ),
    "bracket form": Parser(
        _form("bracket"),
        (
            "orchestrator.models.text.bracket:*",
            "orchestrator.models.text.bracket:*",
            "orchestrator.models.text.forms:*",
        ),
        (
            "Action: search[",
            "Action: search",
            "Action Input: ",
            "[",
            "]",
            "'",
            "Observation: ",
            "Action: add[1, ",
            "search[a], ",
            "(",
        ),
        usual=200_000,
    ),
    "code form": Parser(
        _form("code"),
        ("orchestrator.models.text.code:*", "orchestrator.models.text.forms:*"),
        (
            "```python\n",
            "```\n",
            "```",
            "~~~",
            "<execute>",
            "<execute></execute>\n",
            "<code>",
            "search(",
            "print(",
            "\n",
        ),
    ),
    "plugin form": Parser(
        _form("plugin"),
        ("orchestrator.models.text.json_forms:*",),
        ("<|action_start|>", '<|action_start|><|plugin|>{"name":"search"}<|action_end|>', "<|", *_JSON),
    ),
    "separator form": Parser(
        _form("separator"), ("orchestrator.models.text.json_forms:*",), ("<|tool_calls|>", "<|tool_calls|>[", *_JSON)
    ),
    "JSON form": Parser(
        _form("json"),
        ("orchestrator.models.text.json_forms:*",),
        ("```json\n", "```\n", '{"name": "search", "arguments": {', '[{"name": "search"},', *_JSON),
    ),
    "plans": Parser(
        _plans,
        ("orchestrator.nodes.plan:*",),
        ("#E1 = ", "1. ", '{"steps": ["', '{"calls": [{"tool": "', '"]}', "```", "Plan: ", "\n", "[", "{", '["'),
        usual=200_000,
    ),
    "chosen arguments": Parser(
        _chosen_arguments,
        ("orchestrator.nodes.choose_args:*", "orchestrator.nodes.choose_args:_given()"),
        ("add(", ")", ").", ") ", "a=", "{", '{"arguments": {', "2, "),
        (AgentError,),
        usual=200_000,
    ),
    "readings of replies": Parser(
        _readings,
        (
            "orchestrator.models.reading:*",
            "orchestrator.models.reading:_pattern()",
            "orchestrator.models.logprobs:*",
            "orchestrator.models.base:_NUMBER",
        ),
        (
            "<think>",
            "</think>",
            "\n<think>",
            "```a\n",
            "```",
            '{"a":',
            "{1",
            "add, ",
            "The tool is ",
            "Answer: ",
            "\n",
            "{'choice':",
            "{'choice': 'add', ",
        ),
        usual=200_000,
    ),
    "offline model": Parser(
        _offline,
        (
            "orchestrator.models.offline.arithmetic:*",
            "orchestrator.models.offline:*",
            "orchestrator.models.offline.planning:*",
        ),
        ("1+", "(", "1,000,", "-", "add 1 to ", "2(", "1e", "1.1.", "to the power of "),
        usual=200_000,
    ),
    "arithmetic": Parser(read, (), ("1+", "(", "**", "-", "1,000"), (NoArithmetic,)),
    "server-sent events": Parser(_events, (), ("data: ", "\n\n", "\r", "data: {}\n\n", ":", "\ufeff", *_JSON)),
    "streamed words": Parser(
        _streamed, ("orchestrator.protocols.conversation:_LAST_WORD",), ("a word ", "sk-", "\u00e9")
    ),
    "pieces of a stream": Parser(_deltas, ("orchestrator.models.chat.stream:*",), _JSON, usual=200_000),
    "small pieces of a call": Parser(_small_pieces, (), (",{}", "}", '"}', "{}", '"\\}', "{", "]}"), largest=40_000),
    "answers of model servers": Parser(
        _answer_of_a_server,
        (
            "orchestrator.models.chat.ends:*",
            "orchestrator.models.chat.request:*",
            "orchestrator.models.http_errors:*",
            "orchestrator.models.probe:*",
        ),
        ("<html>", "<script>", "<!--", "context 1", '{"name": "search", "arguments": {}}', *_JSON),
        (ModelError,),
    ),
    "ids of calls": Parser(
        _ids, ("orchestrator.models.anthropic:_IDS", "orchestrator.models.responses:_IDS"), ("call_", "\n", "a.b", "|")
    ),
    "model names": Parser(lambda text: profile_of(text, text), ("orchestrator.models.profile:*",), ("o1", "http://")),
    "lines of MCP servers": Parser(
        _server_lines,
        ("orchestrator.tools.mcp.stdio:*", "orchestrator.tools.mcp.untrusted:*"),
        ('{"jsonrpc":"2.0","id":1,', '{"id":1,"error":', '"result":[', "\x1b[", "\n", "secret"),
    ),
    "schemas": Parser(
        _schema,
        ("orchestrator.tools.mcp.untrusted:*",),
        ("(a+)+", "a{1,9}", "\\1", "(?=", "[", "(", "|", "\\"),
        usual=200_000,
    ),
    "values and their schemas": Parser(_validation, (), (*_JSON, "(", "-", "'a',", "aaaa", "a!", "not ", "~")),
    "references of MCP servers": Parser(
        lambda text: (without_comments(text), refuse_secrets(text), servers_of("NAME=${NAME} " + text)),
        ("orchestrator.tools.mcp.servers:*", "orchestrator.tools.mcp.variables:*"),
        (
            "/*",
            "//",
            ", ",
            "${A:-",
            "${env:",
            "A=",
            "'",
            '"',
            "\\",
            "mcp:",
            "--api-key ",
            "-k=",
            "https://",
            "?key=",
            "a_B",
            "#",
        ),
        (GraphError,),
    ),
    "docstrings": Parser(
        read_docstring,
        ("orchestrator.tools.docstrings:*",),
        (
            "Args:\n",
            "  - a: ",
            "@param a: b\n",
            "## Args\n",
            "===\n",
            "a, ",
            "**",
            "    a: b\n",
            ":param a: b\n",
            "a\n---\n",
            "Args:\n    a (int): b\n",
            "Parameters\n----------\n",
        ),
        usual=200_000,
    ),
    "types in docstrings": Parser(
        written_type,
        ("orchestrator.tools.docstrings:*", "orchestrator.tools.docstrings:written_type()"),
        ("list of ", "Optional[", "Literal['a'", "{'a'", "a or ", ", optional", "(", "-", "list["),
    ),
    "types of states": Parser(
        parse_type,
        ("orchestrator.graph.text.types:*",),
        ("list[", "int | ", "dict[str, ", "Literal['", "',", "]", "|"),
        (GraphError,),
    ),
    "arrows": Parser(
        parse_edges,
        ("orchestrator.graph.edges:*",),
        ("a -> ", "a -> b\n", "a, ", "a -> b : c\n", "->", "-", "#", "a->b->", "START -> "),
        (GraphError, ValueError),
        usual=200_000,
    ),
    "graph files in YAML": Parser(
        read_yaml,
        (),
        ("a: ", "- ", "[", "{", "&a [*a]", "? ", "!!a ", "a: &a {<<: *a}\n", "'", '"', "|\n ", "a: b\n", "*a ", "- - "),
        (ValueError,),
    ),
    "graph files in JSON": Parser(read_json, ("orchestrator.graph.text.source:*",), _JSON, (ValueError,)),
    "pages": Parser(
        lambda text: readable(text, "http://a/"),
        ("orchestrator.tools.builtin.web_fetch.readable:*", "orchestrator.tools.builtin.web_fetch.readable:*"),
        ("<a ", '<a href="', "<a href='b'>", "<!--", "<title>", "<svg>", "</", "<p>", "&#", "<", "<pre>", "<textarea>"),
    ),
    "letters of pages": Parser(
        _letters, ("orchestrator.tools.builtin.web_fetch.client:*",), ("<meta ", "charset=", "<?xml encoding='")
    ),
    "addresses": Parser(
        _address,
        ("orchestrator.tools.builtin.web_fetch.guard:*", "orchestrator.tools.builtin.web_fetch:*"),
        ("//", "@", "http://a:", "%", "..", "0x", "?", "#"),
        (ToolError,),
    ),
    "pages of the browser": Parser(
        _browser_page,
        (
            "orchestrator.tools.builtin.browser.tabs:*",
            "orchestrator.tools.builtin.browser.tabs:*",
        ),
        ('- button "', "- 'a", " [ref=e1]", "[", '\\"', "''", "a-a ", ".", "\n", "../"),
        browser=True,
    ),
    "proxy of the browser": Parser(
        _proxied, ("orchestrator.tools.builtin.browser.service:*",), ("HTTP/1.1 ", " 1", "a", "://", "/", "?")
    ),
    "pictures of tools": Parser(
        lambda text: CallData(int, Requests(), Tracebacks())._pictures({"content": [{"url": text}]}),
        ("orchestrator.render.html.step_data:*",),
        ("data:image/png;base64,", "A", "=", "A=", "+/"),
    ),
    "search results": Parser(_search_results, ("orchestrator.tools.builtin.web_search:*",), ("\u202e", " ", "\x00")),
    "names of files": Parser(
        lambda text: parts_of(text, windows=True),
        ("orchestrator.tools.builtin.files.directory:*",),
        ("a/", "../", "./", "con", "\u200d"),
        (ToolError,),
    ),
    "contents of files": Parser(_files, ("orchestrator.tools.builtin.files:*",), ("a ", "\r\n", "a\n", "a\n a")),
    "output of commands": Parser(_terminal, (), ("a", "\n", "\u00e9")),
    "content of tools": Parser(_content, ("orchestrator.tools.result:*",), ("data:", ";", ",", "a/b", "a/")),
    "names of tools": Parser(
        lambda text: checked(text, "read", "read", None),
        ("orchestrator.tools.tool:*",),
        ("a", "."),
        (TypeError, ValueError),
    ),
    "words of texts": Parser(
        words_of, ("orchestrator.stores.requests:*",), ("a ", "a", "-", "\u00e9", "\u0301", "\u6f22")
    ),
    "texts in PostgreSQL": Parser(
        lambda text: unescaped(escaped(text)),
        ("orchestrator.stores.postgres.statements:*",),
        ("a", "\0", "\x01", "\x01\x03", "\ud800"),
    ),
    "hosts and origins of requests": Parser(
        _hosts, ("orchestrator.web.guard:*",), ("a", "a.", "[", "::", ":8", "http://", "https://a:", "http://[", ":80:")
    ),
    "lines of a comparison": Parser(
        lambda text: lines_of([f"-{text}", f"+{text} b"]),
        ("orchestrator.web.screens.compare:*",),
        ("a", " ", "-", "+"),
    ),
    "marks": Parser(lambda text: (safe_text.plain(text), redact(text)), (), _MARKS, usual=200_000),
}

OWN: Mapping[str, str] = {
    "orchestrator.cli.app:_CHOICE": "an argument that the user types",
    "orchestrator.cli.short_ids:_GENERATED": "an id of at most 255 characters",
    "orchestrator.executor.failures:_COROUTINE": "an error's message, character by character",
    "orchestrator.nodes.compact:_NAME": "the name of a tool, character by character",
    "orchestrator.nodes.file_schema:_kind()": "docstrings of kinds",
    "orchestrator.cli.explain_command:_LINK": "a page of ours",
    "orchestrator.cli.explain_command:_CODE": "messages of ours, whose last characters are the code",
    "orchestrator.cli.explain_command:sections()": "a page of ours",
    "orchestrator.cli.explain_command:_summary()": "a page of ours",
    "orchestrator.cli.app:_NUMBER": "an argument that the user types",
    "orchestrator.cli.app:_BROKEN": "an argument that the user types",
    "orchestrator.stores.fair_claims:_NAME": "an argument of the program, or one that the user types",
    "orchestrator.cli.launch_refs:_NAMED_MODEL": "an argument that the user types",
    "orchestrator.cli.replay_command:_NAMED": "an argument that the user types",
    "orchestrator.clock:_AGE": "an option that the user types",
    "orchestrator.models.refs:_NAME": "an option that the user types",
    "orchestrator.cli.new_command:suggestion()": "an argument that the user types",
    "orchestrator.graph.model:__init_subclass__()": "names of classes in the program",
    "orchestrator.nodes:KINDS": "names of classes of ours",
    "orchestrator.nodes.route:_PLACE": "what the library of guards says of a fault",
    "orchestrator.nodes.route:_CODE": "what the library of guards says of a fault",
    "orchestrator.stores.postgres.record_partitions:_missing()": "what the database says of a fault",
    "orchestrator.stores.postgres.record_partitions:_month_named()": "names of tables of the database",
    "orchestrator.render.html.page:_IMPORT": "modules of the package",
    "orchestrator.render.html.page:_EXPORT": "modules of the package",
    "orchestrator.render.html.page:_STYLE": "a drawing of ours, in which all text is escaped",
    "orchestrator.render.html.page:_LOOK": "a drawing of ours, in which all text is escaped",
    "orchestrator.models.text.conversation:_place": "the prompt that a developer gives",
    "orchestrator.models.offline.planning:named()": "calls that the offline model wrote itself",
    "orchestrator.tools.builtin.files.edits:_RECORD": "names of files in a directory of ours, at most 255 bytes",
    "orchestrator.graph.reading:_add_problems()": "messages of ours about a graph file",
    "orchestrator.graph.text.source:_SAID": "how messages of ours begin",
    "orchestrator.render.png:_PARTS": "a style sheet of ours",
    "orchestrator.render.png:_VARIABLE": "a style sheet of ours",
    "orchestrator.render.png:_rules()": "a style sheet of ours",
    "orchestrator.render.png:painted()": "the first line of a drawing of ours",
    "orchestrator.render.svg:_SVG_TAG": "the first line of a drawing of ours",
    "orchestrator.render.svg:_ATTRIBUTE": "the first line of a drawing of ours",
    "orchestrator.web.compose.saved:_DRAFT": "a name of at most 255 bytes, sign by sign",
    "orchestrator.web.requests:_DATE": "a day of a query, sign by sign",
    "orchestrator.web.screens.compose:_renamed()": "the first line of a graph file of ours",
    "orchestrator.web.problems:_WORD": "names of classes of errors",
    "orchestrator.web.runs:_PAGE_POLICY": "the head of a page of ours",
    "orchestrator.web.runs:export()": "an id that was checked, sign by sign",
    "orchestrator.web.settings:_PREFIX": "an option of the program",
    "orchestrator.web.settings:_TOKEN": "an option that the user types",
    "orchestrator.nodes.catalog:summary()": "docstrings of ours",
    "orchestrator.nodes.catalog:failures()": "docstrings of ours",
    "orchestrator.web.compose.handlers:_words()": "a docstring of ours",
    "orchestrator.models.prices:_WORD": "words of a request, sign by sign",
    "orchestrator.tools.schema:_is_key()": "annotations of functions in the program",
}
"""Patterns that see nothing of others, and why."""
