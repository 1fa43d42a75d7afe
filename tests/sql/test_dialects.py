"""The two `queries.sql` side by side: a diff of them is the document of the dialects."""

from __future__ import annotations

import re

import pytest
from psycopg._queries import MAX_CACHED_STATEMENT_LENGTH

from towline.sql import SERVER_TABLES, TABLES, VIEWS, Queries, read_text, strip_comments

PACKAGES = ("towline.sqlite", "towline.postgres")

# What one database needs and the other does not: at the end of its file, and listed here.
ONLY_IN = {
    "towline.sqlite": [
        "insert_plain_job", "insert_plain_live", "insert_run", "insert_chains_of_run",
        "insert_live_of_run", "insert_edges_of_job", "find_due", "promote_jobs", "find_pending",
        "fill_lanes", "free_lanes", "rest_lanes", "open_lanes", "count_open", "find_chosen",
        "claim_chosen", "claim_jobs", "long_arguments", "find_awaited",
        "settle_attempts", "changed", "find_settled", "settle_live", "settle_chains", "take_writer",
        "newest_migration",
    ],
    "towline.postgres": [
        "promote_due", "claim_pending", "hold_ending", "settle_jobs", "enqueue_plain",
        "enqueue_one", "enqueue_laned", "claim_chosen",
        "insert_notes", "hold_gates", "hold_gate", "try_to_make_gate", "wait_to_make_gate",
        "make_gate", "collect_notes",
        "hold_running", "still_running", "hold_chains", "share_chains",
        "hold_doomed", "hold_keys", "hold_key", "hold_blocked", "hold_jobs",
        "hold_schedules", "chains_of_jobs", "chains_of_keys", "hold_workers",
        "is_registered", "notify", "notify_alone", "notify_one", "notify_ended", "create_schema",
        "has_schema", "hold_schema", "invalid_indexes",
    ],
}  # fmt: skip


# A success must be able to stay on its page there, so no index may name the state.
# Notes are collected up to a lane: only there they are.
OWN_COLUMNS = {
    ("towline.postgres", "chain"): {"bad"},
    ("towline.postgres", "limit"): {"collected"},
}
OWN_TABLES = {"towline.postgres": set(SERVER_TABLES)}


def names(package: str) -> list[str]:
    return re.findall(r"^-- name: (\w+)$", read_text(package, "queries.sql"), re.MULTILINE)


def sections(package: str) -> list[str]:
    text = read_text(package, "queries.sql")
    found = re.findall(r"^-- -{10,} (.*)$", text, re.MULTILINE)
    return [title for title in found if not title.startswith("only here")]


def shared(package: str) -> list[str]:
    """The names before those that only this engine has."""
    found, own = names(package), ONLY_IN[package]
    assert found[len(found) - len(own) :] == own, "what only one engine has stands at the end"
    return found[: len(found) - len(own)]


def tables(package: str) -> dict[str, list[str]]:
    """The columns of each table, in order, from the text of the schema."""
    text = strip_comments(read_text(package, "schema.sql"))
    found = {}
    for table, body in re.findall(r"CREATE TABLE \{(\w+)\} \((.*?)\n\)", text, re.DOTALL):
        parts = [part.split() for part in re.sub(r"\([^()]*\)", "", body).split(",")]
        found[table] = [part[0] for part in parts if part and part[0].islower()]
    return found


def test_both_engines_have_the_same_statements_in_the_same_order() -> None:
    one, two = map(shared, PACKAGES)
    assert one == two
    assert len(one) > 80


def test_both_engines_have_the_same_sections() -> None:
    one, two = map(sections, PACKAGES)
    assert one == two
    assert len(one) >= 5


def test_both_engines_have_the_same_walks() -> None:
    """A name may stand for two statements, _newest and _oldest."""
    walks = [
        [query.name for query in Queries(package, "towline_") if query.name.startswith("walk_")]
        for package in PACKAGES
    ]
    assert walks[0] == walks[1]


@pytest.mark.parametrize("table", TABLES)
def test_both_engines_have_the_same_columns(table: str) -> None:
    """So that plain SQL of people reads either; only their order may differ."""
    one, two = (
        sorted(set(tables(package)[table]) - OWN_COLUMNS.get((package, table), set()))
        for package in PACKAGES
    )
    assert one == two
    assert len(one) >= 2


def test_both_engines_have_the_same_tables_and_views() -> None:
    for package in PACKAGES:
        text = strip_comments(read_text(package, "schema.sql"))
        assert set(re.findall(r"CREATE TABLE \{(\w+)\}", text)) == {
            *TABLES,
            *OWN_TABLES.get(package, ()),
        }
        assert re.findall(r"CREATE VIEW \{(\w+)\}", text) == list(VIEWS)


def test_psycopg_keeps_every_statement_as_it_has_read_it() -> None:
    """One that is longer is read anew each time: 40 µs in every turn of a worker."""
    for query in Queries("towline.postgres", "towline_", "public"):
        assert len(query.format) <= MAX_CACHED_STATEMENT_LENGTH, query.name
