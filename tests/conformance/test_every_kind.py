"""Every statement, in every form, on every kind of connection.

An operation cannot see its connection: it yields statements and receives rows. So on most kinds it
is the statements that are tried, each in every form, and their answers compared with those that our
own connection gets; what operations do with them is tried on connections of ours (`make test`), and
on all of them (`make proof`).
"""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import database as databases
from tests import servers
from tests.conformance.conftest import Play
from tests.conformance.kinds import OURS
from tests.conformance.statements import Answer, forms, watched
from tests.conformance.tours import TOURS, World
from tests.database import Database
from tests.kit import SECOND, Clock
from towline import Towline

# So that a few chains are many lanes, a few jobs a long chain, and what was lost comes back at a
# time that nobody draws by lot.
CHANGED: dict[str, object] = {
    "towline.store.listing.STRIPS": 3,
    "towline.store.retention.PRUNE_JOBS": 2,
    "towline.store.lease.lost_delay": lambda losses: SECOND,
}
# A transaction of ours answers these itself: it knows the time, and tells after its commit.
OWN = ("clock", "notify", "notify_ended")
# These say first how many entries of an index they have passed: what others do decides that, too.
WALKS = ("claim_pending", "promote_due")


def run_tours(play: Play, app: Towline, clock: Clock, url: str) -> list[list[Answer]]:
    """Run them all; what each was answered."""
    beside = Towline(url)
    world = World(app.runner.store, beside.runner.store, clock)
    found: list[list[Answer]] = []
    try:
        for tour in TOURS:
            answers: list[Answer] = []
            play(watched(functools.partial(tour, world), answers))
            found.append(answers)
    finally:
        beside.close()
    return found


def without_passed(rows: list[str]) -> list[str]:
    return sorted(row.partition(", ")[2] for row in rows)


@functools.cache
def answers_to_ours(name: str) -> list[list[Answer]]:
    """What our own connection is answered on this database; asked once for all of the run."""
    told = servers.run_folder() / f"answers on {name}"
    with servers.locked(told.with_suffix(".lock")):
        if not told.exists():
            told.write_bytes(pickle.dumps(ask_ours(name)))
    found: list[list[Answer]] = pickle.loads(told.read_bytes())
    return found


def ask_ours(name: str) -> list[list[Answer]]:
    clock = Clock()
    with TemporaryDirectory() as folder, databases.opened(name, Path(folder)) as database:
        app = Towline(database.url, clock=clock)
        try:
            return run_tours(Play(OURS[0], app, database), app, clock, database.url)
        finally:
            app.close()


@pytest.fixture
def _changed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CHANGED.items():
        monkeypatch.setattr(name, value)


@pytest.mark.usefixtures("_changed")
def test_every_statement_runs_in_every_form_and_is_answered_as_on_our_own_connection(
    play_anywhere: Play, app: Towline, clock: Clock, database: Database
) -> None:
    ours = answers_to_ours(database.name)
    found = run_tours(play_anywhere, app, clock, database.url)
    for tour, got, wanted in zip(TOURS, found, ours, strict=True):
        assert [form for form, _ in got] == [form for form, _ in wanted], tour.__name__
        for (form, rows), (_, expected) in zip(got, wanted, strict=True):
            if form[0].startswith(WALKS):
                rows, expected = map(without_passed, (rows, expected))
            if form[0] not in OWN:
                assert rows == expected, (tour.__name__, form)
    ran = {form for answers in found for form, _ in answers}
    assert ran == forms(type(app.runner.store).__module__)
