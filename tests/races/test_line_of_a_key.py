"""Y2–Y4: many callers and many workers of one key, with retries and continuations."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from tests.database import Database
from tests.kit import Clock, claim, completed, continued, failed, new, rows
from tests.races.auditor import audit_tables, open_reader
from tests.races.crowd import watched
from tests.races.together import begin, in_threads, own_connection, waiting, with_app, work_off
from tests.speed import by_speed, seed
from towline import Towline
from towline.errors import TowlineError
from towline.model import Policy
from towline.operation import Op, Steps
from towline.records import Claimed, Ending
from towline.store import Store

CALLS = by_speed(25, 150)
CALLERS, WORKERS = 4, 3

RUNS = """SELECT j.chain_id, a.started_at, a.ended_at FROM towline_attempt AS a
            JOIN towline_job AS j ON j.id = a.job_id
           WHERE j.key = '{}' AND a.started_at IS NOT NULL ORDER BY a.started_at, a.ended_at"""


def settle(job: Claimed) -> Ending:
    """Some go on, some are tried again, some fail."""
    if job.position == 0 and job.chain_id % 3 == 0:
        return continued(job, new("next"))
    if job.used == 0 and job.chain_id % 4 == 0:
        return failed(job, delay=0)
    return failed(job) if job.chain_id % 7 == 0 else completed(job)


def work(app: Towline, name: str, over: threading.Event) -> list[int]:
    work_off(app, name, settle, until=over.is_set)
    return []


def call(app: Towline, url: str, index: int, key: str, how: str) -> list[int]:
    """Call so often, every third time in a transaction of one's own."""
    ids: list[int] = []
    with closing(own_connection(url)) as mine:
        for number in range(CALLS):
            job = new(
                "t", key=key, on_conflict=how, policy=Policy.RUN, arguments=f"[{index},{number}]"
            )
            if number % 3 or how == "latest":
                ((record, _),) = app.runner.run(app.runner.store.enqueue([job]))
            else:
                begin(mine)
                ((record, _),) = app.runner.run(app.runner.store.enqueue([job]), mine)
                mine.commit()
            ids.append(record.id)
    return ids


def meet(url: str, part: Callable[[Towline, int], list[int]]) -> list[list[int]]:
    """Callers that each do their part, and workers that go on until all has ended."""
    over = threading.Event()
    left = [CALLERS]
    mutex = threading.Lock()

    def take_part(index: int) -> list[int]:
        if index >= CALLERS:
            return with_app(url, lambda app: work(app, f"w{index}", over))
        try:
            return with_app(url, lambda app: part(app, index))
        finally:
            with mutex:
                left[0] -= 1
                if not left[0]:
                    over.set()

    parts = in_threads(CALLERS + WORKERS, take_part)
    with_app(url, lambda app: work(app, "last", over))
    assert with_app(url, lambda app: waiting(app, 0, 1, 2, 3, 4)) == 0
    return parts[:CALLERS]


def check_one_at_a_time(database: Database, key: str) -> list[int]:
    """No two chains of the key ran at once; the chains in the order in which they ran."""
    runs = rows(database, RUNS.format(key))
    order = list(dict.fromkeys(chain for chain, _, _ in runs))
    for (chain, _, ended), (following, started, _) in pairwise(runs):
        if chain != following:
            assert started >= ended, "two of a key ran at once"
    # All runs of a chain come before those of the next.
    assert [chain for chain, _ in pairwise_changes([chain for chain, _, _ in runs])] == order[:-1]
    return order


def pairwise_changes(chains: list[int]) -> list[tuple[int, int]]:
    return [(one, two) for one, two in pairwise(chains) if one != two]


def test_Y2_never_two_of_a_key_at_once_and_always_in_the_order_of_commit(
    url: str, database: Database
) -> None:
    with watched(database):
        parts = meet(url, lambda app, index: call(app, url, index, "k", "after"))
    order = check_one_at_a_time(database, "k")
    assert sorted(order) == sorted(id for part in parts for id in part)
    places = {chain: place for place, chain in enumerate(order)}
    for part in parts:
        assert len(part) == CALLS
        assert [places[id] for id in part] == sorted(places[id] for id in part)
    # Nobody stood behind the same chain as another.
    edges = rows(database, "SELECT chain_id FROM towline_blocker WHERE in_line = 1")
    assert len(edges) == len(set(edges))


def test_Y4_the_newest_arguments_of_each_key_run(url: str, database: Database) -> None:
    """Each caller has a key of his own, so that the order of his calls is known."""
    meet(url, lambda app, index: call(app, url, index, f"k{index}", "latest"))
    for index in range(CALLERS):
        order = check_one_at_a_time(database, f"k{index}")
        found = dict(
            rows(database, f"SELECT id, arguments FROM towline_job WHERE key = 'k{index}'")
        )
        numbers = [int(found[chain].strip("[]").split(",")[1]) for chain in order]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == CALLS - 1


def test_Y4_of_many_callers_one_runs_and_at_most_one_waits(url: str, database: Database) -> None:
    most: list[int] = []
    done = threading.Event()

    def watch() -> None:
        query = "SELECT count(*) FROM towline_chain WHERE state = 0 AND task = 't'"
        while not done.is_set():
            most.append(int(rows(database, query)[0][0]))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        meet(url, lambda app, index: partial(call, app, url)(index, "k", "latest"))
    finally:
        done.set()
        watching.join()
    assert max(most) <= 2
    order = check_one_at_a_time(database, "k")
    ((last,),) = rows(database, f"SELECT arguments FROM towline_job WHERE id = {order[-1]}")
    assert int(last.strip("[]").split(",")[1]) == CALLS - 1


# ---- Y2, Y3: whatever is done to a line, one after another


@pytest.mark.parametrize("walk", range(by_speed(12, 300)))
def test_Y2_Y3_whatever_is_done_to_a_line_at_most_one_of_it_may_run(
    url: str, database: Database, walk: int
) -> None:
    dice = random.Random(f"{seed(1)} {walk}")
    hands = Hands(dice)
    reader = open_reader(url)
    with closing(reader), closing(Towline(url, durable=False, clock=Clock())) as app:
        for _ in range(60):
            step = dice.choice([hands.call, hands.claim, hands.finish, hands.control])
            try:
                app.runner.run(Op("step", step, app.runner.store))
            except TowlineError as error:
                hands.done.append(f"refused: {error}")
            assert audit_tables(reader) == [], "\n".join(hands.done)


class Hands:
    """Does anything to the jobs of one key."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._ids: list[int] = []
        self._held: list[Claimed] = []
        self.done: list[str] = []

    def call(self, store: Store) -> Steps[None]:
        dice, after = self._dice, list[int]()
        how = dice.choice(("after", "after", "latest", "return", "replace"))
        if how != "latest" and dice.random() < 0.4:
            after = dice.sample(self._ids, min(2, len(self._ids)))
        policies = (Policy.RUN, Policy.WAIT) if how in ("after", "latest") else tuple(Policy)
        job = new("t", key="k", on_conflict=how, policy=dice.choice(policies), after=after)
        self.done.append(f"{how}, {job.policy.name}, behind {after}")
        ((record, _),) = yield from store.enqueue([job])
        self._ids.append(record.id)
        self.done.append(f"  is job {record.id}, {record.state}")

    def claim(self, store: Store) -> Steps[None]:
        claimed = yield from claim(store, 2)
        self.done.append(f"claim {[held.job_id for held in claimed]}")
        self._held += claimed

    def finish(self, store: Store) -> Steps[None]:
        if not self._held:
            return
        held = self._held.pop(self._dice.randrange(len(self._held)))
        ends = (completed(held), failed(held), failed(held, delay=0), continued(held, new("next")))
        ending = self._dice.choice(ends)
        self.done.append(f"finish {held.job_id}, {ending.outcome}")
        yield from store.finish([ending])

    def control(self, store: Store) -> Steps[None]:
        if not self._ids:
            return
        id = self._dice.choice(self._ids)
        ops: dict[str, Callable[[], Op[Any]]] = {
            "cancel": lambda: store.cancel(id),
            "complete": lambda: store.complete(id, "1"),
            "continue": lambda: store.complete(id, None, new("next")),
            "fail": lambda: store.fail(id, "no"),
            "retry": lambda: store.retry(id),
            "delete": lambda: store.delete([id], force=False),
        }
        name = self._dice.choice((*ops, "retry"))
        self.done.append(f"{name} {id}")
        yield from ops[name]()
