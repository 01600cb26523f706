"""The tables of PostgreSQL: made once, whoever asks at the same time, and left alone where they are others'."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from orchestrator.errors import StoreError, StoreTooNew
from orchestrator.stores.places import shown_url
from orchestrator.stores.postgres import fair_index
from orchestrator.stores.postgres.connections import address_of, connect
from orchestrator.stores.postgres.schema import VERSION, version_of
from orchestrator.stores.postgres.statements import escaped, index_key, unescaped
from tests.support.postgres import PASSWORD, PostgresDatabase, PostgresServer


@pytest.fixture
def empty(postgres: PostgresDatabase) -> PostgresDatabase:
    """A database without tables."""
    postgres.server.drop_database(postgres.name)
    postgres.server.create_database(postgres.name, tables=False)
    return postgres


def test_several_make_the_tables_at_once(empty: PostgresDatabase) -> None:
    address = address_of(empty.url)
    with ThreadPoolExecutor(6) as pool:
        connections = list(pool.map(lambda _: connect(address), range(6)))
    assert {version_of(one) for one in connections} == {VERSION}
    for one in connections:
        one.close()


def test_tables_of_a_newer_version_are_refused(postgres: PostgresDatabase) -> None:
    postgres.execute("UPDATE orchestrator_schema SET version = 999")
    with pytest.raises(StoreTooNew, match="schema version 999"):
        connect(address_of(postgres.url))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tables_from_before_the_first_release_are_refused_by_name(postgres: PostgresDatabase, version: int) -> None:
    postgres.execute(f"UPDATE orchestrator_schema SET version = {version}")
    with pytest.raises(
        StoreError,
        match=f"schema version {version}, from before the first release.* reads versions 4 to 5. Export its runs",
    ):
        connect(address_of(postgres.url))


def test_tables_of_another_program_are_left_alone(empty: PostgresDatabase) -> None:
    empty.execute("CREATE TABLE graphs (a integer)")
    with pytest.raises(StoreError, match="tables of another program"):
        connect(address_of(empty.url))
    assert empty.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


def test_a_schema_of_its_own(empty: PostgresDatabase) -> None:
    empty.execute("CREATE TABLE graphs (a integer)")
    empty.execute("CREATE SCHEMA runs_of_mine")
    connect(address_of(empty.url_with(options="-csearch_path%3Druns_of_mine"))).close()
    assert empty.execute("SELECT count(*) FROM runs_of_mine.runs") == [(0,)]


def test_statements_are_prepared_from_the_first_on(empty: PostgresDatabase) -> None:
    """A prepared statement is one statement only."""
    connect(address_of(empty.url_with(prepare=0, listen=0))).close()
    assert empty.execute("SELECT version FROM orchestrator_schema") == [(VERSION,)]


@pytest.mark.parametrize(
    "text", ["", "plain", "a\0b", "\x01", "\x01\x01", "\x00\x01\x02", "\ud800", "x\udfffy", "ä€😀"]
)
def test_texts_come_back(text: str, postgres: PostgresDatabase) -> None:
    assert unescaped(escaped(text)) == text
    with connect(address_of(postgres.url)) as connection:
        assert connection.execute("SELECT %s::text, %s::text[]", (text, [text])).fetchone() == (text, [text])
        connection.execute("INSERT INTO graphs VALUES (%s, %s)", (text, text))
        assert connection.execute("SELECT digest, data FROM graphs").fetchall() == [(text, text)]


def test_texts_keep_their_order(postgres: PostgresDatabase) -> None:
    texts = ["", "\0", "\0\0", "\0a", "\x01", "\x01\0", "\x02", "a", "a\0", "a\0b", "a\x01", "a\x02", "ab", "é", "😀"]
    with connect(address_of(postgres.url)) as connection:
        connection.cursor().executemany("INSERT INTO graphs VALUES (%s, '')", [(one,) for one in reversed(texts)])
        assert [row[0] for row in connection.execute("SELECT digest FROM graphs ORDER BY digest")] == texts


def test_long_texts_have_keys_of_their_own(postgres: PostgresDatabase) -> None:
    long = ["x" * 100_000, "x" * 100_001, "😀" * 3000, "\0" * 3000]
    keys = [index_key(one) for one in long]
    assert len({*keys}) == len(keys)
    with connect(address_of(postgres.url)) as connection:
        connection.cursor().executemany("INSERT INTO failed_tools VALUES (%s, 1)", [(one,) for one in keys])


def test_the_password_is_not_shown(postgres_server: PostgresServer) -> None:
    address = address_of(postgres_server.url("postgres", password=True, patience=3))
    assert PASSWORD not in f"{address.url} {address!r}"
    assert address.url == f"postgresql://orchestrator@127.0.0.1:{postgres_server.port}/postgres?patience=3"
    assert address.patience == 3
    with psycopg.connect(address.conninfo) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://me:se@cret@host/db", "several `@`"),
        ("postgresql://me:sec%zzret@host/db", "cannot read it"),
        ("postgresql://me@host/db?nonsense=1", "invalid URI query parameter"),
        ("postgresql://me@[host/db", "end of string"),
        ("postgresql://me@host/db?patience=long", "give seconds"),
        ("postgresql://me@host/db?prepare=maybe", "give 1"),
        ("postgresql://me:secret@host/db?patience", "NAME=VALUE"),
        ("postgresql://me:sec#ret@host/db", "%23"),
        ("postgresql://me:se/cret@host/sec", "%2F"),
        ("postgresql://me:17/sec@host/db", "%2F"),
        ("postgresql://me:sec?sslmode=ret@host/db", "%3F"),
        ("mysql://me@host/db", "not the URL of a PostgreSQL store"),
    ],
)
def test_what_is_no_url(url: str, why: str) -> None:
    with pytest.raises(StoreError, match=why) as caught:
        address_of(url)
    assert "sec" not in str(caught.value).replace("seconds", "")
    assert "sec" not in shown_url(url)


@pytest.mark.parametrize(
    "url",
    ["postgresql://me@[::1]:5432/db", "postgresql://a:1,b:2/db", "postgresql://%2Ftmp%2Fx:5432/db", "postgresql:///db"],
)
def test_hosts_and_ports_are_taken_as_they_are(url: str) -> None:
    assert address_of(url).url == url == shown_url(url)


def test_a_plus_in_a_parameter_is_a_plus() -> None:
    address = address_of("postgresql://me@host/db?password=a+b%2Bc&options=-c%20search_path%3Da+b")
    assert conninfo_to_dict(address.conninfo)["password"] == "a+b+c"
    assert conninfo_to_dict(address.conninfo)["options"] == "-c search_path=a+b"
    assert address.secrets == ("a+b+c",)


def test_labels_with_the_same_beginning_have_indexes_of_their_own(postgres: PostgresDatabase) -> None:
    labels = [f"customer-organisation-identifier-{name}{'x' * 60}" for name in ("alpha", "beta")]
    with connect(address_of(postgres.url)) as connection:
        for label in (*labels, "tenant", *labels):
            fair_index.make(connection, label)
    made = postgres.execute("SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'runs_in_turn%'")
    assert len(made) == 3
    assert all(any(f'"{label}"' in text for (text,) in made) for label in labels)
