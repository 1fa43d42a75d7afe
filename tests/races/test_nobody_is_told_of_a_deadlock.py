"""P5: everybody ends, frees, deletes and cancels the same few chains at once.

Each operation is a transaction of its own, on our connection or on a caller's. Who met others
crosswise is undone, whole or to his savepoint, and run again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests import database as databases
from tests.database import Database
from tests.kit import completed, continued, failed, new
from tests.races.crowd import audit, crowd, open_quick, watched
from tests.races.together import own_connection
from tests.speed import by_speed, seed
from towline import Towline
from towline.errors import (
    BlockerError,
    DuplicateKey,
    InvalidState,
    NotFound,
    StillNeeded,
    StoreUnavailable,
)
from towline.model import Outcome, Policy
from towline.operation import Op
from towline.records import Ending
from towline.store.listing import JobFilter
from towline.store.turn import promote

ROUNDS = by_speed(10, 150)
FEW = 8  # chains to meet at

REFUSALS = (BlockerError, DuplicateKey, InvalidState, NotFound, StillNeeded)


def meddle(app: Towline, number: int) -> Counter[str]:
    """Count what happened, and on which side somebody was told of a deadlock."""
    chance = random.Random(seed(number))
    store = app.runner.store
    done: Counter[str] = Counter()

    def some() -> list[int]:
        chains = [chain.id for chain in app.chains(limit=FEW)]
        chance.shuffle(chains)
        return chains

    def enqueue() -> Op[Any]:
        keys = [None, "k1", "k2"]
        after = some()[: chance.randrange(4)]
        policy = chance.choice(list(Policy))
        batch = [
            new(after=after, policy=policy, key=chance.choice(keys)),
            new("b", key=chance.choice(keys)),
        ]
        chance.shuffle(batch)
        return store.enqueue(batch)

    def finish() -> Op[Any]:
        endings: list[Ending] = []
        for held in app.runner.run(store.claim(number + 1, ["default"], 4)):
            after = some()[: chance.randrange(2)]
            ends = [
                completed(held), completed(held), failed(held), failed(held, delay=0),
                Ending(held, Outcome.CANCELLED), continued(held, new("c", after=after)),
            ]  # fmt: skip
            endings.append(chance.choice(ends))
        return store.finish(endings)

    def delete() -> Op[Any]:
        return store.delete(some()[: chance.randrange(1, 4)], chance.random() < 0.5)

    def first() -> int:
        return (some() or [1])[0]

    menu: list[Callable[[], Op[Any]]] = [
        enqueue, enqueue, finish, finish, finish, delete,
        lambda: store.cancel(first()),
        lambda: store.complete(first(), "1"),
        lambda: store.retry(first()),
        lambda: store.bulk("cancel", JobFilter(task="a"), False, None, 5),
        lambda: store.bulk("retry", JobFilter(task="a"), False, None, 5),
    ]  # fmt: skip
    with closing(own_connection(app.url)) as mine:
        for _ in range(ROUNDS):
            on = mine if chance.random() < 0.5 else None
            side = "ours" if on is None else "the caller's"
            try:
                app.runner.run(chance.choice(menu)(), on)
                if on is not None:
                    mine.commit()
                done[side] += 1
            except REFUSALS as refused:
                done[type(refused).__name__] += 1
            except (psycopg.errors.DeadlockDetected, StoreUnavailable) as told:
                done[f"{type(told).__name__} told on {side}"] += 1
            finally:
                mine.rollback()
            app.runner.run(Op("promote", lambda: promote(store)))
    return done


@pytest.mark.parametrize("database", [databases.newest()], indirect=True)
def test_P5_whoever_meets_at_the_same_few_chains_nobody_is_told_of_a_deadlock(
    database: Database,
) -> None:
    with closing(open_quick(database.url)) as app:
        app.runner.run(app.runner.store.enqueue([new() for _ in range(FEW)]))
    with watched(database):
        done = sum(crowd(meddle, database.url, processes=2, threads=4), Counter[str]())
    assert [what for what in done if "told" in what] == [], done
    audit(database)
    assert min(done["ours"], done["the caller's"]) > 0
