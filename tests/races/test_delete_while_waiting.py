"""Chains are deleted while others enqueue behind them and finish them: no edge dangles, none waits
for ever."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.database import Database
from tests.kit import claim, completed, continued, new, rows
from tests.races.crowd import audit, crowd, open_quick
from tests.races.together import finish_all_of
from tests.speed import by_speed, seed
from towline import Towline
from towline.errors import BlockerError, NotFound, StillNeeded
from towline.model import Policy
from towline.operation import Op

ROUNDS = by_speed(25, 300)
MOST_CROWDS = 5


def meddle(app: Towline, number: int) -> Counter[str]:
    """Enqueue behind whatever there is, delete it, run it; count what happened."""
    chance = random.Random(seed(number))
    store = app.runner.store
    done: Counter[str] = Counter()
    for _ in range(ROUNDS):
        chains = [chain.id for chain in app.chains(limit=12)]
        try:
            match chance.randrange(4):
                case 0:
                    app.runner.run(store.enqueue([new(), new()]))
                case 1:
                    after = chance.sample(chains, min(len(chains), chance.randrange(1, 4)))
                    policy = chance.choice([Policy.FAIL, Policy.RUN])
                    app.runner.run(store.enqueue([new("behind", after=after, policy=policy)]))
                    done["behind"] += 1
                case 2 if chains:
                    cascade = chance.random() < 0.7
                    app.runner.run(store.delete([chance.choice(chains)], cascade=cascade))
                    done["deleted"] += 1
                case _:
                    for held in app.runner.run(Op("claim", lambda: claim(store, 3))):
                        # A continuation that waits: a cascade must follow its blockers, too.
                        after = chance.sample(chains, min(len(chains), 1))
                        following = new("next", after=after)
                        ending = continued(held, following)
                        if chance.random() < 0.7 or held.chain_id in after:
                            ending = completed(held)
                        try:
                            finish_all_of(app, [ending])
                        except BlockerError:
                            finish_all_of(app, [completed(held)])
        except (BlockerError, NotFound, StillNeeded) as refused:
            done[type(refused).__name__] += 1
    return done


def happened(done: Counter[str]) -> bool:
    """All of it has to, or the race was none."""
    return min(done[what] for what in ("behind", "deleted", "StillNeeded", "too late")) > 0


@pytest.mark.usefixtures("costly")
def test_R3_deleting_races_enqueueing_behind_and_nothing_dangles_or_waits_for_ever(
    url: str, database: Database
) -> None:
    app = open_quick(url)
    app.runner.run(app.runner.store.enqueue([new() for _ in range(6)]))
    done: Counter[str] = Counter()
    for _ in range(MOST_CROWDS):
        done = sum(crowd(meddle, url), done)
        done["too late"] = done["NotFound"] + done["BlockerError"]
        if happened(done):
            break
    assert happened(done), done
    audit(database)
    # Run what is left: whatever still waits then would wait for ever.
    for job in app.jobs(state="running", limit=1000):
        app.complete(job.id)
    while held := app.runner.run(Op("claim", lambda: claim(app.runner.store, 100))):
        app.runner.run(app.runner.store.finish([completed(job) for job in held]))
    assert [job for job in app.jobs(limit=10_000) if job.state.open] == []
    audit(database)
    recounted = rows(database, "SELECT state, count(*) FROM towline_jobs GROUP BY 1")
    assert {s: n for s, n in app.counts()["default"].items() if n} == dict(recounted)
    app.close()
