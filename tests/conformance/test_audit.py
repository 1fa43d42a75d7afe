"""Who did what to how many: lines of the audit, written with what they tell of. Every kind."""

from __future__ import annotations

import pytest

from tests.conformance.caller import Caller
from tests.conformance.conftest import Play
from tests.conformance.statements import Answer, watched
from tests.conformance.test_retention import AGES, prune_all
from tests.database import Database
from tests.kit import DAY, SECOND, Clock, new, rows
from towline import Towline
from towline.errors import InvalidState, NotFound
from towline.operation import Steps
from towline.store import Store
from towline.store.listing import JobFilter
from towline.store.retention import KeepFor

Line = tuple[str, str, int | None]


def lines(store: Store, job: int | None = None, queue: str | None = None) -> Steps[list[Line]]:
    """Action, by whom, how many; the oldest first."""
    page = yield from store.audit(job, queue, 1000)
    return [(line.action, line.done_by, line.number) for line in reversed(page.records)]


def every_action(store: Store, by: str | None) -> Steps[None]:
    """Each action once, on jobs 1 to 5, of which 5 goes."""
    yield from store.enqueue([new(), new(delay=60 * SECOND), new(), new(), new()])
    yield from store.cancel(1, by=by)
    yield from store.retry(1, by)
    yield from store.run_now(2, by)
    yield from store.complete(3, "1", by=by)
    yield from store.fail(4, "bad", by=by)
    yield from store.delete([5], by=by)
    yield from store.pause("mail", by)
    yield from store.resume("mail", by)


def test_K3_each_action_leaves_a_line_where_it_belongs(
    play: Play, store: Store, clock: Clock
) -> None:
    play(lambda: every_action(store, "ann"))

    def look() -> Steps[None]:
        assert (yield from lines(store, 1)) == [("cancel", "ann", 1), ("retry", "ann", 1)]
        for id, action in ((2, "run_now"), (3, "complete"), (4, "fail")):
            assert (yield from lines(store, id)) == [(action, "ann", 1)]
        assert (yield from lines(store, None, "mail")) == [
            ("pause", "ann", 1),
            ("resume", "ann", 1),
        ]
        page = yield from store.audit(None, None, 1000)
        assert len(page.records) == 8
        assert {line.at for line in page.records} == {clock()}
        (gone,) = (line for line in page.records if line.action == "delete")
        assert (gone.job_id, gone.number, gone.chosen) == (None, 1, '{"chains": [5]}')

    play(look)


def test_who_gives_no_name_pays_no_statement(play: Play, store: Store, database: Database) -> None:
    answers: list[Answer] = []
    play(watched(lambda: every_action(store, None), answers))
    assert not [form for form, _ in answers if form[0] == "insert_audit"]
    assert rows(database, "SELECT count(*) FROM towline_audit") == [(0,)]


def test_E13_a_line_goes_with_a_rollback(app: Towline, caller: Caller) -> None:
    store = app.runner.store
    caller.begin()
    caller.enqueue(new(), new())
    caller.commit()
    caller.begin()
    caller.run(store.cancel(1, by="ann"))
    caller.run(store.bulk("cancel", JobFilter(queue="default"), False, None, 10, "ann"))
    caller.rollback()
    assert list(app.audit()) == list(app.audit(job=1)) == []
    caller.begin()
    caller.run(store.cancel(1, by="ann"))
    caller.commit()
    assert [(line.action, line.by) for line in app.audit(job=1)] == [("cancel", "ann")]


def test_what_is_refused_leaves_no_line(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new()])
        with pytest.raises(InvalidState):
            yield from store.retry(1, "ann")
        with pytest.raises(NotFound):
            yield from store.note(99, "reveal", "ann")
        page = yield from store.bulk("retry", JobFilter(task="a"), False, None, 10, "ann")
        assert page.number == 0
        assert (yield from lines(store)) == []

    play(script)


def test_K4_an_action_on_many_counts_once_a_page_and_is_in_each_jobs_history(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new("a"), new("b"), new("a"), new("a")])
        chosen = JobFilter(task="a", since=0)
        first = yield from store.bulk("cancel", chosen, False, None, 2, "ann")
        yield from store.bulk("cancel", chosen, False, first.cursor, 2, "ann")
        assert (yield from lines(store)) == [("cancel", "ann", 2), ("cancel", "ann", 1)]
        told = (yield from store.audit(None, None, 1)).records[0].chosen
        assert told == '{"task": "a", "since": "1970-01-01T00:00:00+00:00"}'
        for id in (1, 3, 4):
            assert (yield from lines(store, id)) == [("cancel", "ann", None)]
        assert (yield from lines(store, 2)) == []
        some = JobFilter(ids=frozenset({1, 2, 99}))
        assert (yield from store.bulk("retry", some, True, None, 10, "ann")).number == 1
        assert (yield from store.bulk("retry", some, False, None, 10, "ann")).number == 1
        assert (yield from lines(store, 1))[1:] == [("retry", "ann", None)]

    play(script)


def test_run_now_of_many_is_about_scheduled_ones(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(delay=60 * SECOND), new(), new(delay=60 * SECOND)])
        page = yield from store.bulk("run_now", JobFilter(queue="default"), False, None, 10)
        assert page.number == 2
        pending = yield from store.jobs(JobFilter(queue="default"), 10)
        assert {str(job.state) for job in pending.records} == {"pending"}

    play(script)


def test_R4_lines_go_with_their_job_and_others_with_the_age_of_history(
    play: Play, store: Store, clock: Clock
) -> None:
    def fill() -> Steps[None]:
        yield from every_action(store, "ann")
        yield from store.delete([1])
        assert (yield from lines(store, 1)) == []

    play(fill)
    clock.advance(31 * DAY // SECOND)

    def prune() -> Steps[None]:
        for_ever = KeepFor(7 * DAY, 30 * DAY, None)
        yield from prune_all(store, for_ever)
        assert (yield from lines(store, 4)) == []
        kept = [("run_now", "ann", 1)]  # of job 2, which is still open
        others = [("delete", "ann", 1), ("pause", "ann", 1), ("resume", "ann", 1)]
        assert (yield from lines(store)) == kept + others
        yield from prune_all(store, AGES)
        assert (yield from lines(store)) == kept

    play(prune)


def test_R1_pages_of_lines_lose_and_repeat_nothing(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        for number in range(5):
            yield from store.pause("mail", f"p{number}")
        found: list[str] = []
        cursor: int | None = None
        while True:
            page = yield from store.audit(None, "mail", 2, cursor)
            found += [line.done_by for line in page.records]
            if (cursor := page.cursor) is None:
                break
        assert found == ["p4", "p3", "p2", "p1", "p0"]

    play(script)
