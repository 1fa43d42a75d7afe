"""P3: NOTIFY is a hint, sent at most once for a transaction and queue, and can be turned off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from tests.kit import HOUR, Clock, claim, completed, failed, new, register
from tests.postgres.conftest import add
from towline import Towline
from towline.connections.psycopg import execute
from towline.operation import Op, Statement, Steps
from towline.postgres import engine as engines
from towline.postgres.engine import PostgresEngine as Engine
from towline.store import turn
from towline.task import Task

CHANNEL = "public.towline_wake"

Make = Callable[..., Towline]
Connect = Callable[..., psycopg.Connection[Any]]


class Listener:
    """Hears a channel. A notification of its own, sent last, says that there is no other."""

    def __init__(self, url: str, channel: str = CHANNEL) -> None:
        self._raw = psycopg.connect(url, autocommit=True)
        self._raw.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self._raw.execute("LISTEN the_end")

    def heard(self) -> list[str]:
        """The payloads since the last call, in no order that matters."""
        self._raw.execute("NOTIFY the_end")
        found: list[str] = []
        for notice in self._raw.notifies(timeout=30):
            if notice.channel == "the_end":
                return sorted(found)
            found.append(notice.payload)
        raise AssertionError("the server did not answer")

    def close(self) -> None:
        self._raw.close()


@pytest.fixture
def listener(url: str) -> Iterator[Listener]:
    with closing(Listener(url)) as listener:
        yield listener


def batch(*queues: str, **fields: Any) -> list[Any]:
    return [new(queue=queue, **fields) for queue in queues]


# ---- once for a transaction and queue


@pytest.mark.parametrize("number", [1, 20, 2500])
def test_P3_our_own_transaction_sends_one(app: Towline, listener: Listener, number: int) -> None:
    app.runner.run(app.runner.store.enqueue(batch(*["default"] * number)))
    assert listener.heard() == ["default"]


def test_P3_several_queues_get_one_each(app: Towline, listener: Listener) -> None:
    app.runner.run(app.runner.store.enqueue(batch("a", "b", "a", "c", "b")))
    assert listener.heard() == ["a", "b", "c"]


def test_P3_several_operations_in_one_transaction_send_one(
    app: Towline, listener: Listener
) -> None:
    def steps() -> Steps[None]:
        for _ in range(5):
            yield from app.runner.store.enqueue(batch("a"))

    app.runner.run(Op("several", steps))
    assert listener.heard() == ["a"]


def test_P3_on_a_callers_connection_it_comes_with_the_callers_commit(
    app: Towline, listener: Listener, connect: Connect
) -> None:
    caller = connect()
    for _ in range(5):
        app.runner.run(app.runner.store.enqueue(batch("a", "b", "a")), on=caller)
    assert listener.heard() == []
    caller.commit()
    assert listener.heard() == ["a", "b"]


@pytest.mark.parametrize("how", ["rollback", "savepoint"])
def test_P3_what_is_rolled_back_sends_none(
    app: Towline, listener: Listener, connect: Connect, how: str
) -> None:
    caller = connect()
    caller.execute("SELECT 1")
    caller.execute("SAVEPOINT mine")
    app.runner.run(app.runner.store.enqueue(batch("a")), on=caller)
    if how == "savepoint":
        caller.execute("ROLLBACK TO mine")
        caller.commit()
    else:
        caller.rollback()
    assert listener.heard() == []


def test_P3_an_operation_that_fails_sends_none(app: Towline, listener: Listener) -> None:
    def steps() -> Steps[None]:
        yield from app.runner.store.enqueue(batch("a"))
        raise LookupError

    with pytest.raises(LookupError):
        app.runner.run(Op("fails", steps))
    assert listener.heard() == []


def test_P3_a_callers_autocommit_sends_one(
    app: Towline, listener: Listener, connect: Connect
) -> None:
    app.runner.run(app.runner.store.enqueue(batch("a", "a")), on=connect(autocommit=True))
    assert listener.heard() == ["a"]


# ---- turned off


def test_P3_notify_false_sends_none(make_app: Make, listener: Listener, connect: Connect) -> None:
    app = make_app(notify=False)
    app.runner.run(app.runner.store.enqueue(batch("a")))
    caller = connect()
    app.runner.run(app.runner.store.enqueue(batch("a")), on=caller)
    caller.commit()
    app.pause("a")
    app.resume("a")
    assert listener.heard() == []


# ---- whose


def test_P3_M5_another_app_hears_nothing_of_it(
    url: str, make_app: Make, listener: Listener
) -> None:
    for settings in ({"prefix": "other_"}, {"schema": "other"}):
        app = make_app(**settings)
        channel = f"{settings.get('schema', 'public')}.{settings.get('prefix', 'towline_')}wake"
        with closing(Listener(url, channel)) as its_own:
            app.runner.run(app.runner.store.enqueue(batch("a")))
            assert its_own.heard() == ["a"]
    assert listener.heard() == []


def test_P3_M5_names_of_any_length_have_a_channel(url: str, make_app: Make) -> None:
    """NOTIFY takes 63 bytes; more would be an error in the caller's transaction."""
    first, second = (make_app(prefix="p" * 40, schema="s" * 39 + end) for end in "ab")
    channels = [
        app.runner.engine.channel
        for app in (first, second)
        if isinstance(app.runner.engine, Engine)
    ]
    assert len(set(channels)) == 2
    with closing(Listener(url, channels[0])) as listener:
        for app in (first, second):
            app.migrate()
            with psycopg.connect(url) as connection:
                app.runner.run(app.runner.store.enqueue(batch("a")), on=connection)
        assert listener.heard() == ["a"]


# ---- what else makes work


def scheduled(app: Towline, clock: Clock) -> Op[Any]:
    return app.runner.store.enqueue(batch("a", delay=HOUR))


def run_now(app: Towline, clock: Clock) -> Op[Any]:
    app.runner.run(app.runner.store.enqueue(batch("a", delay=HOUR)))
    return app.runner.store.run_now(1)


def resume(app: Towline, clock: Clock) -> Op[Any]:
    app.pause("a")
    return app.runner.store.resume("a")


def retry(app: Towline, clock: Clock) -> Op[Any]:
    app.runner.run(app.runner.store.enqueue(batch("a")))
    app.runner.run(app.runner.store.fail(1, "broken"))
    return app.runner.store.retry(1)


def unblock(app: Towline, clock: Clock) -> Op[Any]:
    app.runner.run(app.runner.store.enqueue(batch("other")))
    app.runner.run(app.runner.store.enqueue(batch("a", after=[1])))
    return app.runner.store.complete(1, "null")


def unblock_in_a_turn(app: Towline, clock: Clock) -> Op[Any]:
    app.runner.run(app.runner.store.enqueue(batch("other")))
    app.runner.run(app.runner.store.enqueue(batch("a", after=[1])))

    def steps() -> Steps[None]:
        worker = yield from register(app.runner.store, "w")
        (held,) = yield from claim(app.runner.store, queues=["other"])
        yield from app.runner.store.turn(worker, "w", ["none"], 1, [completed(held)])

    return Op("steps", steps)


def unpark(app: Towline, clock: Clock) -> Op[Any]:
    app.runner.run(app.runner.store.enqueue(batch("a")))

    def park() -> Steps[None]:
        held = yield from claim(app.runner.store, queues=["a"])
        yield from app.runner.store.park(held)

    app.runner.run(Op("park", park))
    return Op("unpark", lambda: turn.unpark(app.runner.store, ["a"], ["a"]))


def continuation(app: Towline, clock: Clock) -> Op[Any]:
    app.runner.run(app.runner.store.enqueue(batch("other")))
    return app.runner.store.complete(1, None, new(queue="a"))


WAYS: list[Callable[[Towline, Clock], Op[Any]]] = [
    scheduled, run_now, resume, retry, unblock, unblock_in_a_turn, unpark, continuation,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_P3_whatever_makes_work_or_an_earlier_time_wakes_its_queue_once(
    app: Towline, clock: Clock, listener: Listener, way: Callable[[Towline, Clock], Op[Any]]
) -> None:
    op = way(app, clock)
    listener.heard()
    app.runner.run(op)
    assert listener.heard() == ["a"]


@pytest.mark.parametrize("way", [run_now, resume, retry, unblock, scheduled])
def test_P3_on_a_callers_connection_too(
    app: Towline, clock: Clock, listener: Listener, connect: Connect, way: Any
) -> None:
    op = way(app, clock)
    listener.heard()
    caller = connect()
    app.runner.run(op, on=caller)
    assert listener.heard() == []
    caller.commit()
    assert listener.heard() == ["a"]


def test_P3_what_makes_no_work_wakes_nobody(app: Towline, listener: Listener) -> None:
    app.runner.run(app.runner.store.enqueue(batch("a", "a", "a")))
    listener.heard()

    def steps() -> Steps[None]:
        first, second = yield from claim(app.runner.store, 2, queues=["a"])
        yield from app.runner.store.finish([completed(first), failed(second)])

    app.runner.run(Op("steps", steps))
    app.runner.run(app.runner.store.cancel(3))
    app.runner.run(app.runner.store.enqueue([new(queue="b", after=[3], policy=1)]))
    app.pause("a")
    assert len(app.jobs()) == 4
    app.prune()
    assert listener.heard() == []


# ---- a hint, no more


def test_P3_a_notification_that_cannot_be_sent_does_no_harm(
    app: Towline, task: Task[[int], int], monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    """As when the server's queue of notifications is full: the statement fails after the commit."""
    sql = app.runner.store.sql
    for broken, text in ((sql.notify_alone, "format"), (sql.notify_one, "dollar")):
        wrong = getattr(broken, text).replace("pg_notify", "no_such_function")
        monkeypatch.setattr(broken, text, wrong)
    jobs = [task.enqueue(n) for n in range(3)]
    jobs += app.enqueue_many([task.call(n) for n in range(2)])
    assert [job.refresh().state for job in jobs] == ["pending"] * 5
    monkeypatch.undo()
    assert listener.heard() == []
    task.enqueue(4)
    assert listener.heard() == ["default"]
    app.enqueue_many([task.call(n) for n in range(2)])
    assert listener.heard() == ["default"]


def test_P3_on_our_own_connection_it_is_sent_after_the_commit(
    app: Towline, url: str, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit with a notification takes a lock of the whole database (DESIGN §6.4)."""
    sent: list[tuple[str, TransactionStatus, int]] = []

    def watch(cursor: Any, statement: Statement, *more: Any) -> Any:
        status = cursor.connection.info.transaction_status
        with psycopg.connect(url) as eye:
            ((stored,),) = eye.execute("SELECT count(*) FROM towline_job")
        sent.append((statement.query.name, status, stored))
        return execute(cursor, statement, *more)

    monkeypatch.setattr(engines, "execute", watch)
    app.runner.run(app.runner.store.enqueue(batch("a", "a")))
    app.runner.run(app.runner.store.enqueue(batch("a", key="k")))
    told = [each for each in sent if "notify" in each[0]]
    assert told == [("notify_alone", TransactionStatus.IDLE, number) for number in (2, 3)]
    assert listener.heard() == ["a", "a"]


def test_P3_polling_alone_finds_the_work(make_app: Make) -> None:
    """Nobody listens, nothing is sent, and the job is claimed."""
    app = make_app(notify=False)
    app.task(add).enqueue(1)
    assert len(app.runner.run(app.runner.store.claim(1, ["default"], 1))) == 1
