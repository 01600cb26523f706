"""The command that begins runs at times."""

from __future__ import annotations

from tests.support.shell import Shell


def test_schedules_are_made_listed_and_removed(shell: Shell) -> None:
    empty = shell("schedule", "--list")
    assert (empty.code, empty.out) == (0, "")
    made = shell(
        "schedule", "trial:two", "30 6 * * 1-5", "roses", "--timezone", "Europe/Vienna", "--label", "u=a", "--json"
    )
    assert made.code == 0, made.err
    assert (made.json["name"], made.json["cron"], made.json["labels"]) == ("two", "30 6 * * 1-5", {"u": "a"})
    listed = shell("schedule", "--list")
    heading, row = listed.out.splitlines()
    assert heading.split() == ["SCHEDULE", "GRAPH", "CRON", "TIMEZONE", "NEXT"]
    assert " ".join(row.split()).startswith("two two 30 6 * * 1-5 Europe/Vienna 20")
    assert shell("schedule", "--pause", "two").code == 0
    assert shell("schedule", "--list").out.endswith(" Europe/Vienna  paused\n")
    assert shell("schedule", "--resume", "two").code == 0
    assert "paused" not in shell("schedule", "--list").out
    assert shell("schedule", "--remove", "two").code == 0
    for act in ("--remove", "--pause", "--resume"):
        assert shell("schedule", act, "two").code == 4


def test_what_cannot_be_scheduled_is_a_usage_error(shell: Shell) -> None:
    for words, said in (
        (("schedule",), "GRAPH"),
        (("schedule", "trial:two"), "CRON"),
        (("schedule", "trial:two", "61 * * * *", "x"), "bad minute"),
        (("schedule", "trial:two", "* * * * *", "x", "--timezone", "Mars"), "time zone"),
        (("schedule", "trial:two", "* * * * *", "x", "--catch-up", "twice"), "catch_up"),
        (("schedule", "trial:two", "--list"), "no GRAPH"),
        (("schedule", "--pause", "two", "--list"), "cannot be combined"),
        (("schedule", "nosuch", "* * * * *"), "nosuch"),
    ):
        done = shell(*words)
        assert (done.code, said in done.err) == (2, True), (words, done.err)
