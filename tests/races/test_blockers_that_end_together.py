"""B2, B4: blockers that end in overlapping transactions, from many workers, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.database import Database
from tests.kit import completed, continued, failed, new, rows
from tests.races.crowd import audit
from tests.races.together import (
    Run,
    finish_all_of,
    in_processes,
    in_threads,
    with_app,
    work_off,
)
from tests.speed import by_speed
from towline import Towline
from towline.model import Policy
from towline.records import Claimed, Ending, NewBlocker, NewJob

JOBS = by_speed(20, 200)
STEPS = 3  # of a blocker that continues


def graph() -> list[NewJob]:
    """Jobs with three blockers each, shuffled by construction: one continues, one is shared."""
    batch = [new("shared") for _ in range(10)]
    for n in range(JOBS):
        first = len(batch)
        batch += [new("plain"), new("walk", arguments=str(STEPS))]
        blockers = [NewBlocker(index=index) for index in (first, n % 10, first + 1)]
        batch.append(new("dependent", blockers=blockers))
    return batch


def decide(held: Claimed) -> Ending:
    if held.task == "walk" and (left := int(held.arguments)) > 1:
        return continued(held, new("walk", arguments=str(left - 1)))
    return completed(held, f'"{held.task} {held.arguments}"')


def drain(url: str, index: int) -> list[Run]:
    return with_app(url, lambda app: work_off(app, f"w{index}", decide))


def race(url: str, database: Database, drained: Callable[[int], list[list[Run]]]) -> None:
    """Rounds until more than one worker has run dependents: a quick one may leave none to others.

    `drained` runs the workers of a round.
    """
    for number in range(20):
        with_app(url, lambda app: app.runner.run(app.runner.store.enqueue(graph())))
        per_worker = drained(number)
        check(database, per_worker)
        if sum(any(run.task == "dependent" for run in some) for some in per_worker) > 1:
            return
    pytest.fail("one worker ran all dependents, in every round")


def check(database: Database, per_worker: list[list[Run]]) -> None:
    runs = [run for some in per_worker for run in some]
    assert Counter(run.task for run in runs) == {
        "shared": 10,
        "plain": JOBS,
        "walk": JOBS * STEPS,
        "dependent": JOBS,
    }
    # Exactly once: no attempt was handed out twice, and none was a second one.
    assert len({run.job_id for run in runs}) == len(runs)
    assert {run.attempt for run in runs} == {1}
    # Never early: at the moment of the claim each blocker's last job had ended.
    expected = ('"plain {}"', '"shared {}"', '"walk 1"')
    for run in runs:
        if run.task == "dependent":
            assert run.states == ("completed",) * 3
            assert run.outputs == expected
    # Never stuck: nothing is open.
    assert rows(database, "SELECT * FROM towline_live") == []
    assert rows(database, "SELECT DISTINCT state FROM towline_chain") == [(1,)]


def test_B2_threads_end_blockers_together_and_each_dependent_runs_once(
    url: str, database: Database
) -> None:
    race(url, database, lambda number: in_threads(6, lambda index: drain(url, index)))


@pytest.mark.usefixtures("costly")
def test_B2_processes_end_blockers_together_and_each_dependent_runs_once(
    url: str, database: Database, tmp_path: Path
) -> None:
    race(url, database, lambda number: in_processes(3, tmp_path / f"gate {number}", drain, url))


def test_B2_one_job_behind_many_blockers_that_all_end_at_once(url: str, database: Database) -> None:
    """The last decrement, and only the last, frees it: 20 jobs, each behind 60 chains."""
    batch = [new("blocker") for _ in range(60)]
    batch += [
        new("dependent", blockers=[NewBlocker(index=index) for index in range(60)])
        for _ in range(20)
    ]

    def hold(app: Towline) -> list[Claimed]:
        app.runner.run(app.runner.store.enqueue(batch))
        return app.runner.run(app.runner.store.claim(1, ["default"], 60))

    held = with_app(url, hold)

    def finish(app: Towline, index: int) -> None:
        for one in held[index::6]:
            assert finish_all_of(app, [completed(one)]).accepted == [one.job_id]

    in_threads(6, lambda index: with_app(url, lambda app: finish(app, index)))
    live = rows(database, "SELECT state, open_blockers, count(*) FROM towline_live GROUP BY 1, 2")
    assert live == [(0, 0, 20)]


def test_B4_a_blocker_that_continues_blocks_until_its_last_job_ends_whoever_looks(
    url: str, database: Database
) -> None:
    """Workers walk chains of many steps while others keep putting jobs behind them."""
    chains = 20
    steps = 15
    with_app(
        url,
        lambda app: app.runner.run(
            app.runner.store.enqueue([new("walk", arguments=str(steps))] * chains),
        ),
    )

    def either(app: Towline, index: int) -> list[Run]:
        if index % 2:
            for chain in range(1, chains + 1):
                for _ in range(5):
                    app.runner.run(app.runner.store.enqueue([new("dependent", after=[chain])]))
        return work_off(app, f"w{index}", decide)

    per_thread = in_threads(6, lambda index: with_app(url, lambda app: either(app, index)))
    runs = [run for some in per_thread for run in some]
    tasks = Counter(run.task for run in runs)
    assert tasks == {"walk": chains * steps, "dependent": 3 * 5 * chains}
    assert {run.attempt for run in runs} == {1}
    assert {run.outputs for run in runs if run.task == "dependent"} == {('"walk 1"',)}
    assert rows(database, "SELECT * FROM towline_live") == []


@pytest.mark.parametrize("key", [None, "k"], ids=["", "with a key"])
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("end", [completed, failed])
def test_B2_one_turn_ends_a_chain_and_continues_another_behind_it(
    url: str,
    database: Database,
    end: Callable[[Claimed], Ending],
    policy: Policy,
    key: str | None,
) -> None:
    """Both are in one worker's hands; a third chain is behind the second."""

    def work(app: Towline) -> None:
        app.runner.run(app.runner.store.enqueue([new("first", key=key), new("second")]))
        first, second = app.runner.run(app.runner.store.claim(1, ["default"], 2))
        app.runner.run(
            app.runner.store.enqueue([new("third", after=[second.chain_id], policy=policy)])
        )
        following = new("next", after=[first.chain_id], policy=policy)
        finished = finish_all_of(app, [end(first), continued(second, following)])
        assert sorted(finished.accepted) == [first.job_id, second.job_id]

    with_app(url, work)
    audit(database)
    states = dict(rows(database, "SELECT task, state FROM towline_jobs"))
    ended = end is completed
    if ended or policy is Policy.RUN:
        expected = ("pending", "blocked")
    else:
        expected = ("failed", "failed") if policy is Policy.FAIL else ("blocked", "blocked")
    assert (states["next"], states["third"]) == expected
