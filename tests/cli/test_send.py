"""`orchestrator send`, and what the other commands say of runs that wait for events and times."""

from __future__ import annotations

import pytest

from tests.support.shell import Shell

SHOP = """\
name: shop
state:
  fields:
    order: {type: int, default: 7}
    payment: {type: any, default: null}
input: order
nodes:
  wait: {kind: wait, event: paid, match: {order: order}, into: payment}
edges: START -> wait -> END
output: payment
"""
NAP = """\
name: nap
state: {fields: {x: {type: int, default: 0}}}
nodes:
  nap: {kind: sleep, seconds: 3600}
edges: START -> nap -> END
"""


@pytest.fixture
def shop(shell: Shell) -> Shell:
    (shell.place / "shop.yaml").write_text(SHOP)
    (shell.place / "nap.yaml").write_text(NAP)
    return shell


def test_a_run_waits_for_an_event_and_its_commands_work_as_printed(shop: Shell) -> None:
    run, show, other, *sent = shop.all(
        ("run", "shop.yaml", "7", "--run-id", "r"),
        ("show", "r"),
        ("send", "r", "paid", '{"order": 8}', "--id", "e0"),
        ("answer", "r", "nonsense"),
        ("approve", "r"),
        ("send", "r", "paid", '{"order": 7}', "--id", "e1", "--by", "bank"),
        ("send", "r", "paid", '{"order": 7}', "--id", "e1"),
        ("show", "r", "--json"),
    )
    assert run.code == 3
    for told in (run.err, show.out):
        assert "event at wait" in told
        assert "event 'paid' with order = 7" in told
        assert """send r paid '{"order": 7}'""" in told
    assert other.code == 3
    answer, approve, paid, again, shown = sent
    assert (answer.code, approve.code) == (1, 1)
    assert "send it the event that it waits for with `send`" in answer.err
    assert (paid.code, paid.json) == (0, {"order": 7})
    assert (again.code, again.json) == (0, {"order": 7})
    assert "run r has ended, and received the event 'e1' before: nothing is changed" in again.err
    assert shown.json["state"]["payment"] == {"order": 7}


def test_events_are_sent_by_labels(shop: Shell) -> None:
    *_, several, one, again, other, ended, everyone, none = shop.all(
        ("run", "shop.yaml", "7", "--run-id", "a", "--label", "user=ann", "--label", "n=1"),
        ("run", "shop.yaml", "8", "--run-id", "b", "--label", "user=ann", "--label", "n=2"),
        ("send", "--label", "user=ann", "paid", '{"order": 7}'),
        ("send", "--label", "n=1", "paid", '{"order": 7}', "--id", "e1"),
        ("send", "--label", "n=1", "paid", '{"order": 7}', "--id", "e1"),
        ("send", "--label", "n=1", "paid", '{"order": 7}', "--id", "e2"),
        ("send", "a", "paid", '{"order": 7}', "--id", "e2"),
        ("send", "--label", "user=ann", "--all", "paid", '{"order": 8}', "--json"),
        ("send", "--label", "user=ann", "paid"),
    )
    assert several.code == 2
    assert "2 unfinished runs have the labels user=ann: b, a" in several.err
    assert (one.code, one.json) == (0, {"order": 7})
    assert (again.code, again.json) == (0, {"order": 7})
    assert (other.code, "no unfinished run has the labels n=1" in other.err) == (4, True)
    assert (ended.code, "has ended" in ended.err) == (1, True)
    assert (everyone.code, everyone.json["run_id"]) == (0, "b")
    assert (none.code, "no unfinished run has the labels" in none.err) == (4, True)


def test_an_event_can_be_recorded_without_continuing_the_run(shop: Shell) -> None:
    _, sent, recovered, shown = shop.all(
        ("run", "shop.yaml", "7", "--run-id", "r"),
        ("send", "r", "paid", '{"order": 7}', "--no-resume"),
        ("recover",),
        ("show", "r", "--json"),
    )
    assert sent.code == 0
    assert "r has the event; to continue:" in sent.err
    assert recovered.code == 0
    assert shown.json["status"] == "completed"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("send", "r"), 2), (("send", "r", "paid", "{not json"), 2), (("send", "r", "paid", "{}", "more"), 2),
        (("send", "r", "paid", "--all"), 2), (("send", "--label", "x", "paid"), 2), (("send", "nothing", "paid"), 4),
        (("send", "r", "paid", "NaN"), 2), (("send", "r", ""), 2),
    ],
)  # fmt: skip
def test_a_wrong_command_line_changes_nothing(shop: Shell, words: tuple[str, ...], code: int) -> None:
    _, wrong, events = shop.all(("run", "shop.yaml", "7", "--run-id", "r"), words, ("events", "r"))
    assert wrong.code == code, wrong.err
    assert "event_received" not in events.out


def test_a_run_that_sleeps_says_until_when(shop: Shell) -> None:
    run, show, resumed, recovered = shop.all(
        ("run", "nap.yaml", "--run-id", "r"), ("show", "r"), ("resume", "r"), ("recover",)
    )
    assert run.code == 3
    assert "timer at nap" in show.out
    assert "| until 2" in show.out
    assert "resume r" in show.out
    assert resumed.code == 3
    assert "nothing to recover" in recovered.err


def test_with_an_engine_a_worker_goes_on_with_the_event(shop: Shell) -> None:
    shop("run", "shop.yaml", "7", "--run-id", "r")
    sent = shop("send", "r", "paid", '{"order": 7}', "--no-resume", "--engine", "restate://127.0.0.1:9")
    assert sent.code == 0
    assert "r has the event; a worker continues it" in sent.err
    assert "resume r" not in sent.err


def test_an_event_that_no_step_takes_is_shown_with_the_reason(shop: Shell) -> None:
    _, typo, other, show, why, shown = shop.all(
        ("run", "shop.yaml", "7", "--run-id", "r"),
        ("send", "r", "payed", "{}"),
        ("send", "r", "paid", '{"order": 8}', "--no-resume"),
        ("show", "r"),
        ("why", "r"),
        ("show", "r", "--json"),
    )
    fault = "no node of graph 'shop' waits for it: did you mean 'paid'?"
    assert f"warning: run r keeps the event 'payed', but {fault}" in typo.err
    assert "not taken: event payed" not in typo.err, "it is said once"
    assert "not taken: event paid (record 4): its data does not match" in other.err
    for told in (show.out, why.out):
        assert f"not taken  event payed (record 3): {fault}" in told
    assert shown.json["untaken"][0] == {"seq": 3, "name": "payed", "why": fault}


PRICES = """\
name: prices
state:
  fields:
    order: int
    price: {type: float, default: 0}
input: order
output: price
nodes:
  wait: {kind: wait, event: priced, into: price}
edges: START -> wait -> END
"""


def test_data_of_another_type_is_refused_and_the_run_waits_on(shell: Shell) -> None:
    (shell.place / "prices.yaml").write_text(PRICES)
    begun, *refused, sent = shell.all(
        ("run", "prices.yaml", "7", "--run-id", "r"),
        ("send", "r", "priced", '"much"'),
        ("send", "r", "priced", '{"price": 3}', "--no-resume"),
        ("send", "--label", "no=such", "priced", '"much"'),
        ("send", "r", "priced", "3"),
    )
    assert begun.code == 3
    for one in refused[:2]:
        assert one.code == 2
        assert "the data of the event 'priced' does not fit: update of" in one.err
        assert "field 'price': input should be a valid number" in one.err
    assert (sent.code, sent.json) == (0, 3.0)
