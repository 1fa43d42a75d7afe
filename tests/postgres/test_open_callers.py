"""P9: a caller who has not committed yet keeps waiting only what he has his hands on.

Whoever waits here for the caller fails: the caller is in the same thread and will not move, and our
patience is short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.kit import SECOND, Clock, completed, continued, failed, new, register, states
from tests.postgres.conftest import on_newest
from tests.postgres.open_callers import BEHIND, CANCELLED, KEYED, measure
from tests.speed import by_speed
from towline import Towline
from towline.model import State
from towline.operation import Op
from towline.records import Claimed, Ending
from towline.store import Store

LEASE = 30 * SECOND
KEY = "the key of the running chain"

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def app(make_app: Callable[..., Towline], clock: Clock) -> Towline:
    return make_app(clock=clock, lock_timeout=0.1)


class Worker:
    """Holds one job that a caller will touch, and has others to run and to renew."""

    def __init__(self, app: Towline, clock: Clock, key: str | None) -> None:
        self.app = app
        self.store = app.runner.store
        self.clock = clock
        self.id = app.runner.run(Op("register", lambda: register(self.store, "w", lease=LEASE)))
        app.runner.run(self.store.enqueue([new("touched", key=key)]))
        (self.held,) = app.runner.run(self.store.claim(self.id, ["default"], 1, "w"))
        self.ran: list[int] = []

    def go_on(self, ending: Ending, *, accepted: bool) -> None:
        """Three leases pass. All others are finished, claimed, freed and renewed, also beside the
        one ending, which is accepted at once or put off each time."""
        others: list[Claimed] = []
        offered = [ending]
        for _ in range(9):
            first, _ = self.app.runner.run(
                self.store.enqueue([new("other"), new("other", key="free")])
            )
            self.app.runner.run(self.store.enqueue([new("other", after=[first.record.id])]))
            turn = self.app.runner.run(
                self.store.turn(self.id, "w", ["default"], 5, [*offered, *map(completed, others)])
            )
            asked = [e.held.job_id for e in offered]
            assert turn.finished.postponed == ([] if accepted else asked)
            assert turn.finished.refused == []
            taken = {job.job_id for job in others} | set(asked if accepted else [])
            assert set(turn.finished.accepted) == taken
            self.ran += [job.job_id for job in others]
            if accepted:
                offered = []
            others = turn.claimed
            assert {job.task for job in others} == {"other"}
            self.clock.advance(LEASE / SECOND / 3)
            self.renew(*others, *(e.held for e in offered))
            assert self.app.runner.run(self.store.sweep()) == 0
        self.app.runner.run(self.store.finish([completed(job) for job in others]))
        self.ran += [job.job_id for job in others]
        assert len(self.ran) >= 9 * 2, "nothing else went on"

    def renew(self, *held: Claimed) -> None:
        renewed = self.app.runner.run(
            self.store.renew(self.id, "w", LEASE, {(job.job_id, job.attempt) for job in held})
        )
        assert (renewed.registered, renewed.postponed, renewed.lost) == (True, False, [])


@pytest.fixture(params=[None, KEY], ids=["plain", "keyed"])
def worker(app: Towline, clock: Clock, request: pytest.FixtureRequest) -> Worker:
    """A plain job is ended by other statements than one with a key."""
    return Worker(app, clock, request.param)


@dataclass(frozen=True)
class Deed:
    """What a caller does with the running job before it leaves its transaction open."""

    name: str
    op: Callable[[Store, Claimed], Op[Any]]
    waits: bool
    """Whether the end of that one chain has to wait for the caller."""
    wins: bool = False
    """Whether the caller has ended the job himself, if he commits."""
    by_key: bool = False
    """Whether it needs a key to be done: without, the caller does not touch the job."""


DEEDS = [
    Deed("enqueues behind it", lambda s, x: s.enqueue([new(after=[x.chain_id])]), waits=True),
    Deed("cancels it", lambda s, x: s.cancel(x.job_id), waits=True, wins=True),
    Deed("completes it", lambda s, x: s.complete(x.job_id, "1"), waits=True, wins=True),
    Deed("is given it for its key", lambda s, x: s.enqueue([new("touched", key=KEY)]), waits=False),
    Deed(
        "asks to replace it by its key",
        lambda s, x: s.enqueue([new("touched", key=KEY, on_conflict="replace")]),
        waits=True,
        by_key=True,
    ),
]


@on_newest
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@pytest.mark.parametrize("deed", by_speed(DEEDS[::2], DEEDS), ids=lambda deed: deed.name)
def test_P9_a_caller_with_its_hands_on_a_running_job_delays_only_the_end_of_that_chain(
    app: Towline, worker: Worker, connect: Connect, deed: Deed, commits: bool
) -> None:
    raw = connect()
    app.runner.run(deed.op(app.runner.store, worker.held), raw)
    ending = completed(worker.held)
    waits = deed.waits and (worker.held.key is not None or not deed.by_key)
    worker.go_on(ending, accepted=not waits)
    raw.commit() if commits else raw.rollback()
    finished = app.runner.run(app.runner.store.finish([ending], "w", worker.id))
    id = worker.held.job_id
    if not waits or (deed.wins and commits):
        assert finished.refused == [id]  # it had ended
    else:
        assert finished.accepted == [id]
    if commits and deed.name == "enqueues behind it":
        assert State.BLOCKED not in [job.state for job in app.jobs()]
    state = State.CANCELLED if commits and deed.name == "cancels it" else State.COMPLETED
    assert app.runner.run(Op("look", lambda: states(app.runner.store, id), reads=True)) == [state]


@pytest.mark.parametrize(
    "end",
    [
        lambda held: continued(held, new("next", queue="next")),
        lambda held: failed(held, delay=10**6 * SECOND),
    ],
    ids=["continues", "is tried again"],
)
def test_P9_a_job_that_does_not_end_its_chain_waits_for_nobody_behind_it(
    app: Towline, worker: Worker, connect: Connect, end: Callable[[Claimed], Ending]
) -> None:
    raw = connect()
    app.runner.run(app.runner.store.enqueue([new(after=[worker.held.chain_id])]), raw)
    worker.go_on(end(worker.held), accepted=True)
    raw.commit()


def test_P9_one_caller_at_many_running_chains_delays_those_and_no_other(
    app: Towline, worker: Worker, connect: Connect
) -> None:
    """In one turn with endings that need not wait."""
    store = app.runner.store
    app.runner.run(store.enqueue([new() for _ in range(6)]))
    held = app.runner.run(store.claim(worker.id, ["default"], 6, "w"))
    raw = connect()
    app.runner.run(store.enqueue([new("behind", after=[job.chain_id for job in held[::2]])]), raw)
    endings = [completed(job) for job in held]
    finished = app.runner.run(store.finish(endings, "w", worker.id))
    assert finished.accepted == [job.job_id for job in held[1::2]]
    assert finished.postponed == [job.job_id for job in held[::2]]
    raw.commit()
    assert app.runner.run(store.finish(endings[::2], "w", worker.id)).accepted == finished.postponed
    (behind,) = app.runner.run(store.claim(worker.id, ["default"], 6, "w"))
    assert behind.task == "behind"


def test_P9_what_a_caller_has_cancelled_but_not_committed_is_passed_over_by_claims(
    app: Towline, worker: Worker, connect: Connect
) -> None:
    store = app.runner.store
    records = [r for r, _ in app.runner.run(store.enqueue([new() for _ in range(3)]))]
    raw = connect()
    app.runner.run(store.cancel(records[1].id), raw)
    claimed = app.runner.run(store.claim(worker.id, ["default"], 3, "w"))
    assert [job.job_id for job in claimed] == [records[0].id, records[2].id]
    raw.rollback()
    (late,) = app.runner.run(store.claim(worker.id, ["default"], 3, "w"))
    assert late.job_id == records[1].id


@on_newest
def test_P9_workers_go_on_beside_three_open_callers_until_they_commit(database: Database) -> None:
    """With real leases and workers at once; `python -m tests.postgres.open_callers` has figures."""
    _, during, after = measure(database.url, lease=1.5, quiet=0)
    assert during.finished > 0
    assert during.renewed > 0
    assert during.renewals_put_off == 0
    assert during.postponed[BEHIND] > 0
    assert during.postponed[CANCELLED] > 0
    assert (during.accepted, during.refused) == ({KEYED}, set())
    assert (after.accepted, after.refused) == ({BEHIND}, {CANCELLED})
