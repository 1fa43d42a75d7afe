"""B3: a dependent stored while its blocker completes, continues, fails or is deleted."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.database import Database
from tests.kit import completed, continued, failed, new, rows
from tests.races.together import (
    Run,
    begin,
    finish_all_of,
    in_processes,
    in_threads,
    own_connection,
    waiting,
    with_app,
    work_off,
)
from tests.speed import by_speed
from towline import Towline
from towline.errors import BlockerError, StillNeeded
from towline.model import Policy
from towline.records import Claimed, Ending

CHAINS = by_speed(25, 240)
ENDS = ("completes", "continues", "fails", "goes")
BLOCKERS = "blockers"  # a queue of their own, so that nobody else ends them


@dataclass
class Part:
    """What one thread or process did and saw."""

    runs: list[Run] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)  # deleting was refused
    stored: list[tuple[int, int, str]] = field(default_factory=list)  # job, chain, policy
    refused: list[int] = field(default_factory=list)  # chains there was nothing left of


def end_of(chain: int) -> str:
    return ENDS[chain % len(ENDS)]


def end_blockers(app: Towline, index: int, part: Part) -> None:
    """Claim blockers a few at a time and end each in its own way."""
    store = app.runner.store
    while held := app.runner.run(store.claim(100 + index, [BLOCKERS], 2)):
        for job in held:
            finished = finish_all_of(app, [ending(job)])
            assert finished.accepted == [job.job_id]
            if end_of(job.chain_id) == "goes":
                try:
                    app.runner.run(store.delete([job.chain_id]))
                    part.deleted.append(job.chain_id)
                except StillNeeded:
                    part.kept.append(job.chain_id)


def ending(job: Claimed) -> Ending:
    how = end_of(job.chain_id)
    if how == "continues":
        return continued(job, new("tail"))
    if how == "fails":
        return failed(job)
    return completed(job, '"done"')


def decide(job: Claimed) -> Ending:
    return completed(job, '"tail"' if job.task == "tail" else "null")


def put_behind(app: Towline, policy: Policy, part: Part) -> None:
    """Store a job behind every chain in turn, each in a transaction of ours."""
    for chain in range(1, CHAINS + 1):
        try:
            ((record, _),) = app.runner.run(
                app.runner.store.enqueue([new("dependent", after=[chain], policy=policy)])
            )
        except BlockerError:
            part.refused.append(chain)
        else:
            part.stored.append((record.id, chain, policy.name))


def put_behind_on(app: Towline, url: str, part: Part) -> None:
    """The same in transactions of the caller, every third of which is rolled back."""
    with closing(own_connection(url)) as connection:
        for chain in range(1, CHAINS + 1):
            begin(connection)
            try:
                ((record, _),) = app.runner.run(
                    app.runner.store.enqueue([new("dependent", after=[chain])]), on=connection
                )
            except BlockerError:
                part.refused.append(chain)
                connection.rollback()
                continue
            if chain % 3:
                connection.commit()
                part.stored.append((record.id, chain, Policy.FAIL.name))
            else:
                connection.rollback()


def take_part(url: str, index: int) -> Part:
    """Even ones end blockers, odd ones put jobs behind them; then all of them work."""
    part = Part()

    def work(app: Towline) -> None:
        if index % 2 == 0:
            end_blockers(app, index, part)
        elif index == 7:
            put_behind_on(app, url, part)
        else:
            put_behind(app, Policy(index // 2), part)
        part.runs += work_off(app, f"w{index}", decide)

    with_app(url, work)
    return part


def store_blockers(url: str) -> None:
    blockers = [new("blocker", queue=BLOCKERS)] * CHAINS
    with_app(url, lambda app: app.runner.run(app.runner.store.enqueue(blockers)))


def check(url: str, database: Database, parts: list[Part]) -> None:
    deleted = {chain for part in parts for chain in part.deleted}
    kept = {chain for part in parts for chain in part.kept}
    stored = {job: (chain, policy) for part in parts for job, chain, policy in part.stored}
    runs = {run.job_id: run for part in parts for run in part.runs if run.task == "dependent"}
    assert Counter(chain % len(ENDS) for chain in deleted | kept) == {3: CHAINS // len(ENDS)}
    # Refused only where the chain was deleted; what was stored before that had run by then.
    assert {chain for part in parts for chain in part.refused} <= deleted
    # What was rolled back was never there, and nothing ran twice.
    jobs = rows(database, "SELECT id FROM towline_job WHERE task = 'dependent'")
    assert {id for (id,) in jobs} == set(stored)
    assert sum(run.task == "dependent" for part in parts for run in part.runs) == len(runs)
    assert {run.attempt for run in runs.values()} <= {1}
    states = dict(rows(database, "SELECT id, state FROM towline_jobs"))
    outputs = {"completes": '"done"', "goes": '"done"', "continues": '"tail"'}
    for job, (chain, policy) in stored.items():
        if (output := outputs.get(end_of(chain))) is not None:
            # Never early, never stuck: it ran, after the last job of the chain had ended.
            assert (runs[job].states, runs[job].outputs) == (("completed",), (output,))
            assert states[job] == "completed"
        elif policy == "RUN":
            assert (runs[job].states, states[job]) == (("failed",), "completed")
        else:
            assert job not in runs
            assert states[job] == ("failed" if policy == "FAIL" else "blocked")
    revive(url, database)


def revive(url: str, database: Database) -> None:
    """What failed comes back with its blocker, while others look for work: B6 in a crowd."""

    def end_one(app: Towline, index: int) -> None:
        for job in app.runner.run(app.runner.store.claim(100 + index, [BLOCKERS], 1)):
            finish_all_of(app, [completed(job, '"at last"')])

    bad = [chain for chain in range(1, CHAINS + 1) if end_of(chain) == "fails"]

    def work(app: Towline, index: int) -> None:
        for chain in bad[index::4]:
            app.runner.run(app.runner.store.retry(chain))
            end_one(app, index)
        while waiting(app, 0, queue=BLOCKERS):  # one that another was about to claim is passed over
            end_one(app, index)
        work_off(app, f"r{index}", decide)

    in_threads(4, lambda index: with_app(url, lambda app: work(app, index)))
    assert rows(database, "SELECT * FROM towline_live") == []
    ends = rows(database, "SELECT state, count(*) FROM towline_chains GROUP BY state")
    assert [state for state, _ in ends] == ["completed"]


def test_B3_threads_put_jobs_behind_chains_that_are_ending(url: str, database: Database) -> None:
    store_blockers(url)
    parts = in_threads(8, lambda index: take_part(url, index))
    check(url, database, parts)


@pytest.mark.usefixtures("costly")
def test_B3_processes_put_jobs_behind_chains_that_are_ending(
    url: str, database: Database, tmp_path: Path
) -> None:
    store_blockers(url)
    check(url, database, in_processes(4, tmp_path / "gate", take_part, url))
