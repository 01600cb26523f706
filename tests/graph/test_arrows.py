"""The arrow text says edges, and says where it cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ArrowSyntaxError
from orchestrator.graph import Edge, format_edges, parse_edges


def test_one_arrow_is_one_edge() -> None:
    assert parse_edges("START -> a") == (Edge("START", "a"),)


def test_a_chain_is_an_edge_per_arrow() -> None:
    assert parse_edges("START -> a -> b -> END") == (Edge("START", "a"), Edge("a", "b"), Edge("b", "END"))


def test_commas_fan_out_and_in() -> None:
    assert parse_edges("a -> b, c -> j") == (Edge("a", "b"), Edge("a", "c"), Edge("b", "j"), Edge("c", "j"))


def test_a_label_belongs_to_the_last_arrow_of_its_chain() -> None:
    assert parse_edges("a -> b -> c, d : ok") == (Edge("a", "b"), Edge("b", "c", "ok"), Edge("b", "d", "ok"))


@pytest.mark.parametrize(
    ("label", "outcome", "each"),
    [("ok", "ok", None), ("ok each xs", "ok", "xs"), ("each xs", None, "xs"), ("each each", None, "each")],
)
def test_labels(label: str, outcome: str | None, each: str | None) -> None:
    assert parse_edges(f"a -> b : {label}") == (Edge("a", "b", outcome, each),)


def test_spaces_blank_lines_and_comments_say_nothing() -> None:
    text = """
        # first the draft
        START->write   ->  grade   # then its grade

        grade  ->  END:good
    """
    assert parse_edges(text) == (Edge("START", "write"), Edge("write", "grade"), Edge("grade", "END", "good"))


def test_names_may_hold_hyphens_and_still_touch_the_arrow() -> None:
    assert parse_edges("choose-tool->call_it") == (Edge("choose-tool", "call_it"),)


@pytest.mark.parametrize("outcome", ["error", "timeout", "exhausted"])
def test_a_star_is_any_node_s_reserved_outcome(outcome: str) -> None:
    assert parse_edges(f"* -> fix : {outcome}") == (Edge("*", "fix", outcome),)


def test_outcomes_for_failures_can_be_a_list() -> None:
    assert parse_edges("* -> clean : error, exhausted") == (
        Edge("*", "clean", "error"),
        Edge("*", "clean", "exhausted"),
    )
    assert parse_edges("a, b -> c : failed, timeout each xs") == (
        Edge("a", "c", "failed", "xs"),
        Edge("b", "c", "failed", "xs"),
        Edge("a", "c", "timeout", "xs"),
        Edge("b", "c", "timeout", "xs"),
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a -> b : good, bad", "a list of outcomes takes error, timeout, exhausted, failed, too_long only"),
        ("a -> b : error, error", "'error' occurs twice"),
        ("a -> b : error,", "the line ends, expected an outcome after ','"),
        ("* -> b : error, failed", "'*' as a source takes only a reserved outcome"),
        ("a -> b : error, END", "'END' is not an outcome"),
    ],
)
def test_lists_that_are_none_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ArrowSyntaxError) as caught:
        parse_edges(text)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "* -> clean : error, exhausted",
        "a, b -> c : error, timeout, failed\na -> d : exhausted",
        "a -> b : ok\na -> b : error, timeout\na -> b",
        "a -> b : error\na -> c : timeout",
    ],
)
def test_lists_are_written_as_they_are_read(text: str) -> None:
    edges = parse_edges(text)
    assert format_edges(edges, lists=True) == text
    assert parse_edges(format_edges(edges)) == edges


def test_objects_tuples_and_texts_mix() -> None:
    edges = [Edge("START", "a"), ("a", "b"), ("b", "c", "ok"), ("b", "d", None, "xs"), "c, d -> END"]
    assert parse_edges(edges) == parse_edges("START -> a -> b\nb -> c : ok\nb -> d : each xs\nc, d -> END")
    assert parse_edges(Edge("a", "b")) == (Edge("a", "b"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a => b", "line 1, column 3: '=>' is not an arrow; write '->'"),
        ("a → b", "line 1, column 3: '→' is not an arrow; write '->'"),
        ("a - > b", "line 1, column 3: '-' is not an arrow; write '->'"),
        ("a b", "line 1, column 3: there is no arrow; write 'source -> target'"),
        ("a", "line 1, column 2: there is no arrow; write 'source -> target'"),
        (
            "a -> ",
            "line 1, column 6: the line ends, expected a name after '->'; write 'source -> target : outcome'",
        ),
        ("-> b", "line 1, column 1: there is '->', expected a name; write 'source -> target : outcome'"),
        (
            "a -> b, : ok",
            "line 1, column 9: there is ':', expected a name after ','; write 'source -> target : outcome'",
        ),
        (
            "a -> b :",
            (
                "line 1, column 9: the line ends, expected an outcome or 'each FIELD'; "
                "write 'source -> target : outcome'"
            ),
        ),
        (
            "a -> b : each",
            (
                "line 1, column 14: the line ends, expected a state field after 'each'; "
                "write 'source -> target : outcome'"
            ),
        ),
        ("a -> b : ok each x-y", "line 1, column 18: 'x-y' is not a field; name a list in the state after 'each'"),
        ("a -> b : ok no", "line 1, column 13: 'no' is unexpected; write one statement per line"),
        ("a -> b : ok -> c", "line 1, column 13: '->' is unexpected; write one statement per line"),
        ("a -> b; b -> c", "line 1, column 7: ';' does not end a statement; write one statement per line"),
        (
            "a -> 1b",
            (
                "line 1, column 6: '1b' cannot start a name; "
                "use letters, digits, '_' and '-', and start with a letter or '_'"
            ),
        ),
        ("START -> a : ok", "line 1, column 1: START has no outcomes; remove 'ok'"),
        ("END -> a", "line 1, column 1: END is an end: no edge starts there; remove what follows it"),
        ("a -> STOP -> b", "line 1, column 6: STOP is an end: no edge starts there; remove what follows it"),
        ("a -> START", "line 1, column 6: no edge can lead back to START; name the first node instead"),
        ("a -> *", "line 1, column 6: '*' is not a target; name a node"),
        ("a -> b : END", "line 1, column 10: 'END' is not an outcome; name an outcome that the node declares"),
        (
            "* -> a",
            (
                "line 1, column 1: '*' as a source takes only a reserved outcome; "
                "write '* -> NODE : error', ': timeout' or ': exhausted'"
            ),
        ),
    ],
)
def test_each_fault_has_its_place_and_its_mend(text: str, message: str) -> None:
    with pytest.raises(ArrowSyntaxError) as raised:
        parse_edges(text)
    assert str(raised.value).split("\n")[0] == message


def test_a_fault_shows_its_line() -> None:
    with pytest.raises(ArrowSyntaxError) as raised:
        parse_edges("START -> a\n  a -> b ; c\n")
    assert (raised.value.line, raised.value.column) == (2, 10)
    assert str(raised.value).split("\n")[1:] == ["    a -> b ; c", "           ^"]


def test_a_tuple_that_is_no_edge_says_so() -> None:
    with pytest.raises(
        ArrowSyntaxError, match=r"line 2.*\('a',\) is not an edge; write \(source, target, outcome, each\)"
    ):
        parse_edges([("a", "b"), ("a",)])  # type: ignore[list-item]


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,3}(-[a-z]{1,2})?", fullmatch=True).filter(
    lambda name: name not in ("START", "END", "STOP", "each")
)
few = st.sampled_from(["a", "b", "c", "d"]) | names
labels = st.tuples(st.none() | st.sampled_from(["ok", "no", "error"]), st.none() | st.just("xs"))
edges = st.one_of(
    st.builds(lambda s, t, label: Edge(s, t, *label), few, few | st.sampled_from(["END", "STOP"]), labels),
    st.builds(lambda t, each: Edge("START", t, None, each), few, st.none() | st.just("xs")),
    st.builds(lambda t, outcome: Edge("*", t, outcome), few, st.sampled_from(["error", "timeout", "exhausted"])),
)


@given(st.lists(edges, max_size=12))
def test_what_is_written_reads_back_as_the_same_edges_in_the_same_order(edges: list[Edge]) -> None:
    assert parse_edges(format_edges(edges)) == tuple(edges)


@given(st.lists(edges, max_size=6))
def test_an_edge_s_own_text_is_arrow_text(edges: list[Edge]) -> None:
    assert parse_edges([str(edge) for edge in edges]) == tuple(edges)


def test_what_is_written_is_compact() -> None:
    text = "START -> plan -> b, c\nb, c -> j : ok\nj -> END"
    assert format_edges(parse_edges(text)) == text
