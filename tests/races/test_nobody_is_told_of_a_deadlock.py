"""P5: everybody ends, frees, deletes and cancels the same few chains at once.

Each operation is a transaction of its own, on our connection or on a caller's. On ours a deadlock
is run again; on a caller's there must be none at all.
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
from windlass import Windlass
from windlass.errors import (
    BlockerError,
    DuplicateKey,
    InvalidState,
    NotFound,
    StillNeeded,
    StoreUnavailable,
)
from windlass.model import Ending, Outcome, Policy
from windlass.operation import Op
from windlass.store.listing import JobFilter

ROUNDS = 40
FEW = 8  # chains to meet at

REFUSALS = (BlockerError, DuplicateKey, InvalidState, NotFound, StillNeeded)


def meddle(app: Windlass, number: int, *, callers: bool) -> Counter[str]:
    """Count what happened, and on which side somebody was told of a deadlock. Where nobody brings
    a connection of his own, jobs also have keys and are retried, and many are cancelled at once."""
    chance = random.Random(number)
    store = app.store
    done: Counter[str] = Counter()

    def some() -> list[int]:
        chains = [chain.id for chain in app.chains(limit=FEW)]
        chance.shuffle(chains)
        return chains

    def enqueue() -> Op[Any]:
        keys = [None] if callers else [None, "k1", "k2"]
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
        for held in app.run(store.claim(number + 1, ["default"], 4)):
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
    ]  # fmt: skip
    if not callers:
        menu += [
            lambda: store.retry(first()),
            lambda: store.bulk("cancel", JobFilter(task="a"), False, None, 5),
            lambda: store.bulk("retry", JobFilter(task="a"), False, None, 5),
        ]
    with closing(own_connection(app.url)) as mine:
        for _ in range(ROUNDS):
            on = mine if callers and chance.random() < 0.5 else None
            side = "ours" if on is None else "the caller's"
            try:
                app.run(chance.choice(menu)(), on)
                if on is not None:
                    mine.commit()
                done[side] += 1
            except REFUSALS as refused:
                done[type(refused).__name__] += 1
            except (psycopg.errors.DeadlockDetected, StoreUnavailable) as told:
                done[f"{type(told).__name__} told on {side}"] += 1
            finally:
                mine.rollback()
            app.run(store.promote())
    return done


def meddle_on_both_sides(app: Windlass, number: int) -> Counter[str]:
    return meddle(app, number, callers=True)


def meddle_on_ours(app: Windlass, number: int) -> Counter[str]:
    return meddle(app, number, callers=False)


def storm(database: Database, work: Callable[[Windlass, int], Counter[str]]) -> Counter[str]:
    """What everybody did to the same few chains; nobody was told of a deadlock."""
    with closing(open_quick(database.url)) as app:
        app.run(app.store.enqueue([new() for _ in range(FEW)]))
    with watched(database):
        done = sum(crowd(work, database.url, processes=2, threads=4), Counter[str]())
    assert [what for what in done if "told" in what] == [], done
    audit(database)
    return done


@pytest.mark.parametrize("database", [databases.newest()], indirect=True)
def test_P5_ends_deletes_and_cancels_meet_on_ours_and_on_callers_connections(
    database: Database,
) -> None:
    done = storm(database, meddle_on_both_sides)
    assert min(done["ours"], done["the caller's"]) > 0


@pytest.mark.parametrize("database", [databases.newest()], indirect=True)
def test_P5_retries_and_bulk_control_meet_them_on_ours(database: Database) -> None:
    assert storm(database, meddle_on_ours)["ours"] > 0
