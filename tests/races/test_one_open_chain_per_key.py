"""D1, D2: many enqueue with one key at the same moment, also while its chain ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.database import Database, SqliteDatabase
from tests.kit import completed, continued, failed, new, rows
from tests.races.crowd import watched
from tests.races.together import (
    begin,
    in_processes,
    in_threads,
    own_connection,
    waiting,
    with_app,
    work_off,
)
from tests.speed import by_speed
from towline import Towline
from towline.records import Claimed, Ending, NewJob

KEYS = by_speed(12, 120)
ROUNDS = by_speed(12, 120)

Answer = tuple[str, int, bool]  # key, chain, created


def ask(app: Towline, job: NewJob, on: object = None) -> Answer:
    ((record, created),) = app.runner.run(app.runner.store.enqueue([job]), on)
    return str(job.key), record.chain_id, created


def enqueue_all(url: str, index: int) -> list[Answer]:
    """Every key once, at about the same moment as all the others; one by the caller's own hand."""

    def work(app: Towline) -> list[Answer]:
        app.migrate()
        if index:
            return [ask(app, new("t", key=f"k{n}")) for n in range(KEYS)]
        answers = []
        with closing(own_connection(url)) as mine:
            for n in range(KEYS):
                begin(mine)
                answer = ask(app, new("t", key=f"k{n}"), mine)
                if n % 4:
                    mine.commit()
                    answers.append(answer)
                else:
                    mine.rollback()
        return answers

    return with_app(url, work)


def check_one_chain_each(database: Database, answers: list[Answer]) -> None:
    chains: defaultdict[str, set[int]] = defaultdict(set)
    created: Counter[str] = Counter()
    for key, chain, new_one in answers:
        chains[key].add(chain)
        created[key] += new_one
    assert {key: len(some) for key, some in chains.items()} == {f"k{n}": 1 for n in range(KEYS)}
    assert set(created.values()) == {1}
    found = rows(database, "SELECT key, id FROM towline_job")
    assert sorted(found) == sorted((key, *some) for key, some in chains.items())


def test_D1_threads_that_enqueue_one_key_get_one_chain(url: str, database: Database) -> None:
    answers = in_threads(8, lambda index: enqueue_all(url, index))
    check_one_chain_each(database, [answer for some in answers for answer in some])


@pytest.mark.usefixtures("costly")
def test_D1_processes_that_enqueue_one_key_get_one_chain(
    url: str, database: Database, tmp_path: Path
) -> None:
    """They begin with an empty database, too."""
    if isinstance(database, SqliteDatabase):
        database.path.unlink()
    else:
        database.rows("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    answers = in_processes(4, tmp_path / "gate", enqueue_all, url)
    check_one_chain_each(database, [answer for some in answers for answer in some])


# ---- D2: while chains end


def end_chains(app: Towline, index: int, askers: int) -> list[Answer]:
    """Continue, complete and fail what comes, until all who ask have said that they are done."""
    work_off(app, f"w{index}", settle, until=lambda: waiting(app, 0, queue="done") == askers)
    return []


def settle(job: Claimed) -> Ending:
    if job.position < job.chain_id % 3:
        return continued(job, new("other"))
    return failed(job) if job.chain_id % 5 == 0 else completed(job)


def keep_asking(app: Towline, job: NewJob, chains: int = 1) -> list[Answer]:
    """Ask so often, and until so many chains were met."""
    answers: list[Answer] = []
    while len(answers) < ROUNDS or len({chain for _, chain, _ in answers}) < chains:
        answers.append(ask(app, job))
    app.runner.run(app.runner.store.enqueue([new("done", queue="done")]))
    return answers


def take_part(url: str, index: int) -> list[Answer]:
    """Even ones end chains, odd ones ask for one key in scope "open"; they are four."""
    if index % 2 == 0:
        return with_app(url, lambda app: end_chains(app, index, 2))
    return with_app(url, lambda app: keep_asking(app, new("t", key="k"), chains=2))


def check_no_overlap(database: Database, answers: list[Answer]) -> None:
    """Each chain was created by one enqueue, and only after the one before had ended."""
    chains = rows(
        database,
        "SELECT id, state, created_at, ended_at FROM towline_chain WHERE task = 't' ORDER BY id",
    )
    assert sorted(chain for _, chain, created in answers if created) == [row[0] for row in chains]
    assert {chain for _, chain, _ in answers} == {row[0] for row in chains}
    assert 1 < len(chains) < len(answers)
    if database.engine == "sqlite":  # elsewhere a transaction's time is when it began
        for (_, _, _, ended), (_, _, created, _) in pairwise(chains):
            assert created >= ended
    for id, state, _, _ in chains:
        assert state == (2 if id % 5 == 0 else 1)
    # Chains continued while they were asked for.
    lengths = rows(
        database,
        "SELECT chain_id, count(*) FROM towline_job WHERE chain_id IN"
        " (SELECT id FROM towline_chain WHERE task = 't') GROUP BY 1 ORDER BY 1",
    )
    assert lengths == [(row[0], 1 + row[0] % 3) for row in chains]
    assert rows(database, "SELECT * FROM towline_live WHERE queue = 'default'") == []


def test_D2_threads_that_ask_while_the_chain_continues_and_ends_never_see_two_open(
    url: str, database: Database
) -> None:
    with watched(database):
        answers = in_threads(4, lambda index: take_part(url, index))
    check_no_overlap(database, [answer for some in answers for answer in some])


@pytest.mark.usefixtures("costly")
def test_D2_processes_that_ask_while_the_chain_continues_and_ends_never_see_two_open(
    url: str, database: Database, tmp_path: Path
) -> None:
    with watched(database):
        answers = in_processes(4, tmp_path / "gate", take_part, url)
    check_no_overlap(database, [answer for some in answers for answer in some])


def test_D2_scope_any_gives_the_first_chain_for_ever_while_it_ends(
    url: str, database: Database
) -> None:
    def take_part(app: Towline, index: int) -> list[Answer]:
        if index % 2 == 0:
            return end_chains(app, index, 3)
        return keep_asking(app, new("t", key="k", scope="any"))

    parts = in_threads(6, lambda index: with_app(url, lambda app: take_part(app, index)))
    answers = [answer for some in parts for answer in some]
    assert len(answers) == 3 * ROUNDS
    ((key, chain),) = {(key, chain) for key, chain, _ in answers}
    assert key == "k"
    assert sum(created for _, _, created in answers) == 1
    assert rows(database, "SELECT id FROM towline_chain WHERE task = 't'") == [(chain,)]
