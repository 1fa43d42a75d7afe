"""Threads and processes claim, end, lose and sweep at once: no attempt is given out twice."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.database import Database
from tests.kit import SECOND, claim, completed, new, register, rows
from tests.races.crowd import audit, crowd, open_quick
from tests.races.together import finish_all_of
from tests.speed import by_speed, seed
from towline import Towline
from towline.model import Outcome, State
from towline.operation import Op
from towline.records import Claimed, Ending
from towline.store.turn import promote

JOBS = by_speed(100, 800)
STALLED = 300
LONG = 10**7 * SECOND

Given = list[tuple[int, int]]


def enter(app: Towline, name: str, lease: int = LONG) -> int:
    return app.runner.run(
        Op("register", lambda: register(app.runner.store, name, lease=lease, drawn=True))
    )


def take(app: Towline, worker: int, room: int) -> list[Claimed]:
    return app.runner.run(Op("claim", lambda: claim(app.runner.store, room, worker)))


def all_ended(app: Towline) -> bool:
    states = app.counts().get("default", {})
    return not any(number for state, number in states.items() if State(state).open)


def claim_and_end(app: Towline, number: int) -> tuple[Given, Given]:
    """Claim and end in every way until nothing is open; what was given, and which ends were taken.

    Now and then it is taken for dead, goes on under a new number, and says late how its old
    attempts ended.
    """
    chance = random.Random(seed(number))
    given: Given = []
    ended: Given = []
    late: list[Claimed] = []
    name = f"w{number}"
    worker = enter(app, name)

    def finish(endings: list[Ending]) -> None:
        taken = set(finish_all_of(app, endings, name).accepted)
        ended.extend(
            (ending.held.job_id, ending.held.attempt)
            for ending in endings
            if ending.held.job_id in taken and ending.outcome is Outcome.COMPLETED
        )

    while True:
        claimed = take(app, worker, chance.randrange(1, 6))
        given += [(job.job_id, job.attempt) for job in claimed]
        endings: list[Ending] = []
        for job in claimed:
            match chance.randrange(6):
                case 0:
                    late.append(job)
                case 1:
                    endings.append(Ending(job, Outcome.FAILED, error="boom", delay=0))
                case 2:
                    endings.append(Ending(job, Outcome.SNOOZED, delay=0))
                case 3:
                    endings.append(Ending(job, Outcome.RELEASED, started=False))
                case _:
                    endings.append(completed(job))
        finish(endings)
        if late and (not claimed or chance.random() < 0.3):
            app.runner.run(app.runner.store.sweep(gone={worker: "taken for dead"}))
            worker = enter(app, name)
            finish([completed(job) for job in late])
            late.clear()
        app.runner.run(Op("promote", lambda: promote(app.runner.store)))
        if not claimed and not late:
            if all_ended(app):
                return given, ended
            time.sleep(0.001)


@pytest.mark.usefixtures("costly")
def test_L1_every_attempt_number_is_given_out_once_and_every_job_ends_once(
    url: str, database: Database
) -> None:
    app = open_quick(url)
    app.runner.run(
        app.runner.store.enqueue([new(max_attempts=100, priority=i % 3) for i in range(JOBS)])
    )
    app.close()
    answers = crowd(claim_and_end, url)
    given = Counter(attempt for attempts, _ in answers for attempt in attempts)
    assert [attempt for attempt, times in given.items() if times > 1] == []
    highest: dict[int, int] = {}
    for job, attempt in given:
        highest[job] = max(attempt, highest.get(job, 0))
    assert sorted(highest) == list(range(1, JOBS + 1))
    assert given.total() == sum(highest.values())  # no number was left out
    assert len([attempts for attempts, _ in answers if attempts]) > 1, "only one of them worked"
    kept = "SELECT job_id, number FROM towline_attempt"
    assert set(rows(database, kept)) <= set(given)
    # Whoever was told that its completion counts is the one in the history, and nobody else.
    finals = rows(database, f"{kept} WHERE final = 1 AND outcome = 1 ORDER BY 1")
    assert sorted(attempt for _, ended in answers for attempt in ended) == finals
    ends = "SELECT count(*), count(DISTINCT job_id) FROM towline_attempt WHERE final = 1"
    assert rows(database, ends) == [(JOBS, JOBS)]
    audit(database)


def sweep_and_run(app: Towline, number: int) -> list[int]:
    """A worker that takes over what has stalled and runs it."""
    ran: list[int] = []
    worker = enter(app, f"w{number}")
    while True:
        app.runner.run(app.runner.store.sweep(limit=50))
        app.runner.run(Op("promote", lambda: promote(app.runner.store)))
        claimed = take(app, worker, 10)
        ran += [job.job_id for job in claimed]
        assert finish_all_of(app, [completed(job) for job in claimed]).refused == []
        if not claimed:
            if all_ended(app):
                return ran
            time.sleep(0.001)


@pytest.mark.usefixtures("costly")
def test_L5_three_hundred_stalled_jobs_and_six_workers_run_three_hundred_jobs(
    url: str, database: Database
) -> None:
    app = open_quick(url)
    app.runner.run(app.runner.store.enqueue([new() for _ in range(STALLED)]))
    for share in range(6):
        dead = enter(app, f"dead {share}", lease=1)
        assert len(take(app, dead, STALLED // 6)) == STALLED // 6
    assert app.counts() == {"default": {State.RUNNING: STALLED}}
    answers = crowd(sweep_and_run, url)
    assert sorted(job for ran in answers for job in ran) == list(range(1, STALLED + 1))
    history = "SELECT number, outcome, count(*) FROM towline_attempts GROUP BY 1, 2 ORDER BY 1"
    assert rows(database, history) == [(1, "lost", STALLED), (2, "completed", STALLED)]
    assert app.counts()["default"][State.COMPLETED] == STALLED
    left = app.runner.run(app.runner.store.workers())
    assert sorted(worker.name for worker in left) == [f"w{number}" for number in range(6)]
    app.close()
    audit(database)
