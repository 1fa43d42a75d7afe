"""A column of a job is named once per engine and once in Python; lists carry it from there."""

from __future__ import annotations

import re

import pytest

from tests.shape.source import PACKAGE
from tests.sql.test_dialects import PACKAGES, tables
from towline.records import Claimed, JobRecord, NewJob, WorkerRecord
from towline.schedule import ScheduleRecord
from towline.sql import Queries, list_columns, read_columns, read_text
from towline.store.audit import LINE, AuditRecord
from towline.store.columns import COUNTED, COUNTER, JOB, RARE, SHAPE, row_of
from towline.store.enqueue import LIVE
from towline.store.schedule import PLANNED

# `label` is an option, a filter with an index, can be changed, and is shown everywhere: few columns
# are all of that.
MOST_FILES = 16
MOST_LINES = 58
# What people and frameworks are shown is chosen there, column by column; the labels of metrics are
# other ones.
FACES = ("cli/", "dashboard/", "brief.py", "agent/", "integrations/", "app/tables.py", "telemetry/")


def head(package: str) -> str:
    text, *_ = read_text(package, "queries.sql").partition("-- name: ")
    return text


def lists(package: str) -> dict[str, list[str]]:
    return {
        name: [column.split()[0] for column in columns]
        for name, columns in read_columns(head(package)).items()
    }


def named(word: str, *folders: str) -> dict[str, int]:
    """How many lines of each file name a column."""
    found = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".sql") and (not folders or path.parent.name in folders):
            lines = [
                x for x in path.read_text("utf-8").splitlines() if re.search(rf"\b{word}\b", x)
            ]
            if lines:
                found[str(path.relative_to(PACKAGE))] = len(lines)
    return found


def test_a_column_touches_few_files() -> None:
    found = {path: n for path, n in named("label").items() if not path.startswith(FACES)}
    assert len(found) <= MOST_FILES, found
    assert sum(found.values()) <= MOST_LINES, found


@pytest.mark.parametrize("column", ["label", "timeout", "max_attempts"])
def test_what_a_caller_says_of_a_job_passes_through_the_store_unnamed(column: str) -> None:
    """It is in the list of what is stored, of what is claimed, and of what a run has in common."""
    asked = {"label": 3, "timeout": 0, "max_attempts": 0}[column]  # by chain_records and walk_label
    assert named(column, "sqlite")["sqlite/queries.sql"] <= 3 + asked
    assert named(column, "postgres")["postgres/queries.sql"] <= 3 + asked
    assert {"store/enqueue.py", "store/columns.py", "postgres/store.py"}.isdisjoint(named(column))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_lists_are_those_of_the_records(package: str) -> None:
    found = lists(package)
    assert found["stored"] == [*JOB]
    assert found["opened"] == [*LIVE]
    assert found["counter"] == [*COUNTER]
    assert found["counted"] == [*COUNTED]
    assert found["registered"] == [*WorkerRecord._fields]
    assert [*found["planned"], *found["since"]] == [*ScheduleRecord._fields]
    assert found["planned"] == [*PLANNED]
    assert found["noted"] == [*AuditRecord._fields] == ["id", *LINE]
    assert {*found["claimed"]} < {*Claimed._fields} & {*JOB}
    assert {*found["standing"]} - {"state"} < {*JobRecord.__struct_fields__}
    assert [*SHAPE] == [*found["said"], "policy", "trace", "at", "delay"]


def test_a_plain_job_is_what_few_jobs_have_left_out() -> None:
    plain = Queries("towline.sqlite", "towline_").insert_plain_job
    assert [*plain.order] == [name for name in JOB if name not in RARE]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_lists_are_columns_of_their_tables(package: str) -> None:
    found, columns = lists(package), tables(package)
    for name, table in {
        "stored": "job",
        "said": "job",
        "claimed": "job",
        "opened": "live",
        "standing": "live",
        "tried": "attempt",
        "registered": "worker",
        "counter": "rollup",
        "counted": "rollup",
        "noted": "audit",
        "planned": "schedule",
        "since": "schedule",
    }.items():
        assert {*found.pop(name, ())} <= {*columns[table]}, name
    assert found == {}, "a list that this test does not know"


def test_every_list_is_used() -> None:
    for package in PACKAGES:
        text = read_text(package, "queries.sql").removeprefix(head(package))
        for name in lists(package):
            use = rf"\{{(\w\.|:)?{name}( typed| added| summed)?\}}"
            assert re.search(use, text), f"{package}: {name}"


def test_no_name_is_left_in_braces() -> None:
    for package in PACKAGES:
        for query in Queries(package, "towline_"):
            for text in [each.text for each in query.states] or [query.text]:
                assert not re.search(r"\{|\}", text), query.name


def test_a_row_is_what_its_job_says() -> None:
    job = NewJob("a", "{}", label="l", key="k", trace="t", timeout=5)
    row = dict(zip(JOB, row_of(job, 1, 2, 3, 4, 6), strict=True))
    assert (row["id"], row["chain_id"], row["position"]) == (1, 2, 3)
    assert (row["blockers"], row["created_at"], type(row["policy"])) == (4, 6, int)
    for name in {*JOB} & {*NewJob.__struct_fields__} - {"blockers"}:
        assert row[name] == getattr(job, name)


def test_a_list_stands_in_sql_in_six_ways() -> None:
    found = read_columns("-- columns: two = one bigint,\n--     other text\n-- something else\n")
    assert found == {"two": ["one bigint", "other text"]}
    text = "({two}) ({j.two}) ({:two}) ({two typed}) {job}"
    assert list_columns(text, found) == (
        "(one, other) (j.one, j.other) (:one, :other) (one bigint, other text) {job}"
    )
    assert list_columns("{two summed}; {two added}", found) == (
        "cast(sum(one) AS bigint), cast(sum(other) AS bigint); "
        "one = t.one + excluded.one, other = t.other + excluded.other"
    )


@pytest.mark.parametrize(
    "head",
    [
        "-- columns: job = id",
        "-- columns: x = id; DROP TABLE y",
        "-- columns: x = id, 'a'",
        "-- columns: x = id,,task",
        "-- columns: x = id varchar",
    ],
)
def test_nothing_but_names_is_listed(head: str) -> None:
    with pytest.raises(ValueError, match="columns"):
        read_columns(head)
