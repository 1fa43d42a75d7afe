"""What a job carries comes back the same, on every kind of connection; the rest is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.caller import Caller
from tests.conformance.conftest import Play
from tests.kit import claim, completed, failed, new, register
from tests.payloads import LIMIT, LINES, REFUSED, REFUSED_NAMES, VALUES, WORDS, same
from towline import InvalidArguments, State, Task, Towline, TowlineError
from towline.errors import (
    InvalidSetting,
    OutputError,
    PayloadTooLarge,
    UnsupportedConnection,
)
from towline.operation import Op, Steps
from towline.records import Claimed
from towline.store import Store, read
from towline.task.batch import new_jobs
from towline.task.context import Blockers

Carry = Task[..., Any]

MANY = 600  # so many that PostgreSQL is sent them another way


def carrier(app: Towline, name: str, annotation: Any) -> Carry:
    """A task that takes and gives one value of a type."""

    def carry(value: Any = None) -> Any:
        return value

    carry.__annotations__ = {"value": annotation, "return": annotation}
    return app.task(name=name)(carry)


def carriers(app: Towline, values: Sequence[tuple[Any, Any]]) -> list[Carry]:
    return [carrier(app, f"carry {n}", annotation) for n, (annotation, _) in enumerate(values)]


def perform(app: Towline, held: Claimed) -> tuple[Any, str]:
    """Do what a worker does: the argument as the function gets it, and its result as text."""
    signature = app.registry[held.task].signature
    _, kwargs = signature.decode(held.arguments)
    return kwargs["value"], signature.encode_output(kwargs["value"], limit=LIMIT)


def changed(values: Sequence[tuple[Any, Any]], back: Sequence[Any]) -> list[tuple[Any, Any]]:
    """What did not come back the same, with what came instead."""
    return [
        (value, other)
        for (_, value), other in zip(values, back, strict=True)
        if not same(value, other)
    ]


def test_E5_E6_every_value_comes_back_as_argument_and_as_output(
    play: Play, app: Towline, store: Store
) -> None:
    """To the function, to who reads the output, and to a job that waited for it."""
    tasks = carriers(app, VALUES)
    calls = [task.call(value) for task, (_, value) in zip(tasks, VALUES, strict=True)]

    def work() -> Steps[tuple[list[int], list[Any]]]:
        worker = yield from register(store)
        stored = yield from store.enqueue(new_jobs(calls))
        assert [record.arguments for record, _ in stored] == [call.arguments for call in calls]
        held = yield from claim(store, len(calls), worker)
        ids = [job.job_id for job in held]
        yield from store.enqueue([new("waits", after=ids)])
        done = [perform(app, job) for job in held]
        endings = [completed(job, text) for job, (_, text) in zip(held, done, strict=True)]
        assert (yield from store.finish(endings)).refused == []
        return ids, [value for value, _ in done]

    def read_all(ids: Sequence[int]) -> Steps[tuple[list[Any], Blockers]]:
        records = yield from read.records(store, ids)
        outputs = [app.decode_output(record.task, record.last_output) for record in records]
        (waiting,) = yield from claim(store)
        found = yield from store.blockers([waiting.job_id])
        return outputs, Blockers(found[waiting.job_id], app.decode_output)

    ids, arguments = play(work)
    outputs, blockers = play(lambda: read_all(ids))
    assert changed(VALUES, arguments) == []
    assert changed(VALUES, outputs) == []
    assert changed(VALUES, list(blockers)) == []


def test_E5_a_bulk_keeps_every_text(play: Play, app: Towline, store: Store) -> None:
    """Where rows go in bulk they are written in yet another form."""
    plain = carrier(app, "plain", Any)
    words = [*WORDS, *LINES, "\0"]
    jobs = new_jobs([plain.call({words[n % len(words)]: words[n % 7]}) for n in range(MANY)])
    for n, job in enumerate(jobs):
        job.label = WORDS[n % len(WORDS)]

    def stored() -> Steps[list[int]]:
        return [record.id for record, _ in (yield from store.enqueue(jobs))]

    ids = play(stored)
    records = play(lambda: read.records(store, ids))
    assert [(r.arguments, r.label) for r in records] == [(j.arguments, j.label) for j in jobs]


@pytest.mark.usefixtures("caller_of_kind")
def test_E5_names_and_texts_are_kept(caller: Caller, app: Towline, store: Store) -> None:
    """Label, key, queue, names of blockers, errors, progress, who and why: none is read as SQL,
    none is folded into another; what a database does not take is replaced in a text alone."""
    plain = carrier(app, "plain", int)
    # A queue's name may be anything that does not stand for others: "*", "-slow".
    queues = [f"q{word}" if word[0] in "*-" else word for word in WORDS]
    calls = [
        plain.using(label=word, key=word, queue=queue).call(0)
        for word, queue in zip(WORDS, queues, strict=True)
    ]
    jobs = caller.call("enqueue_many", calls)
    assert [(job.label, job.key, job.queue, job.created) for job in jobs] == [
        (word, word, queue, True) for word, queue in zip(WORDS, queues, strict=True)
    ]
    (waiting,) = caller.call(
        "enqueue_many", [plain.using(after=dict(zip(WORDS, jobs, strict=True))).call(1)]
    )
    assert [blocker.name for blocker in caller.call("blockers", waiting.id)] == WORDS
    for word, queue, job in zip(WORDS, queues, jobs, strict=True):
        found = caller.call("jobs", label=word, key=word, queue=queue)
        assert [other.id for other in found] == [job.id]
    assert caller.call("counts").keys() >= set(queues)

    texts = [*WORDS, *LINES, "a\0b", "\ud800"]
    kept = [*WORDS, *LINES, "a\ufffdb", "?"]

    def fail_with_texts() -> Steps[list[int]]:
        worker = yield from register(store)
        stored = yield from store.enqueue([new("plain", queue="texts") for _ in texts])
        held = yield from claim(store, len(texts), worker, ["texts"])
        reports = [(job, 0.5, text) for job, text in zip(held, texts, strict=True)]
        assert all((yield from store.progress(reports)))
        endings = [failed(job, text) for job, text in zip(held, texts, strict=True)]
        assert (yield from store.finish(endings)).refused == []
        return [record.id for record, _ in stored]

    ids = caller.run(Op("fail with texts", fail_with_texts))
    every = "".join(texts)
    gone = caller.call("cancel", jobs[0].id, reason=every, by=every)
    assert (gone.error, gone.ended_by) == ("".join(kept), "".join(kept)[:200])  # a name is short
    caller.commit()
    ended = [job.record for job in app.jobs(queue="texts", limit=len(ids), newest=False)]
    assert [record.id for record in ended] == ids
    assert [(record.last_error, record.last_progress_text) for record in ended] == [
        (text, text) for text in kept
    ]


def over(limit: int) -> tuple[str, str]:
    """Text of four-byte characters whose JSON takes just so many bytes, and one byte more."""
    room = limit - len('{"value":""}')
    text = "\U0001f600" * (room // 4) + "x" * (room % 4)
    return text, text + "x"


@pytest.mark.usefixtures("caller_of_kind")
def test_E8_a_payload_may_take_the_limit_and_no_byte_more(caller: Caller, app: Towline) -> None:
    """As argument and as output, a mebibyte by default; refused with its size."""
    plain = carrier(app, "plain", str)
    fits, too_long = over(LIMIT)
    (job,) = caller.call("enqueue_many", [plain.call(fits)])
    with pytest.raises(PayloadTooLarge, match="take 1,048,577 bytes; the limit is 1,048,576 bytes"):
        caller.call("enqueue_many", [plain.call(too_long)])
    output = fits + "x" * (len('{"value":""}') - len('""'))
    with pytest.raises(PayloadTooLarge, match="takes 1,048,577 bytes"):
        caller.call("complete", job.id, output + "x")
    assert caller.call("complete", job.id, output).output == output
    assert caller.call("refresh", of=job).output == output
    caller.commit()
    stored = app.job(job.id)
    assert (stored.arguments, stored.output) == (f'{{"value":"{fits}"}}', output)


# ---- what is refused


def enqueue_on(caller: Caller, task: Carry, *values: Any, **options: Any) -> Any:
    bound = task.using(on=caller.raw, **options)
    return caller.wait(bound.aenqueue(*values)) if caller.kind.awaits else bound.enqueue(*values)


@pytest.mark.usefixtures("caller_of_kind")
def test_E5_E6_E7_what_is_refused_leaves_the_callers_transaction_as_it_was(
    caller: Caller, app: Towline
) -> None:
    """No statement is sent: one that fails would spoil the transaction on PostgreSQL, and one that
    does not would begin it."""
    plain, tasks = carrier(app, "plain", Any), carriers(app, REFUSED)
    place = caller.in_transaction
    for task, (_, value) in zip(tasks, REFUSED, strict=True):
        with pytest.raises(InvalidArguments, match="argument 'value'"):
            enqueue_on(caller, task, value)
    for name in REFUSED_NAMES:
        for option in ({"label": name}, {"key": name}, {"queue": name}, {"after": {name: 1}}):
            with pytest.raises(InvalidSetting, match="printable characters"):
                enqueue_on(caller, plain, 1, **option)
    assert caller.in_transaction is place

    jobs = [enqueue_on(caller, task) for task in tasks]
    for job, (_, value) in zip(jobs, REFUSED, strict=True):
        with pytest.raises(OutputError, match="the result"):
            caller.call("complete", job.id, value)
    caller.commit()
    assert {app.job(job.id).state for job in jobs} == {State.PENDING}


# Where there is nothing to connect to, and what is said when somebody tries.
NOWHERE = [
    ("sqlite:////nowhere/app.db", "the folder of the database does not exist"),
    ("postgresql://nobody@127.0.0.1:1/nowhere", "onnection refused"),
]


@pytest.mark.parametrize(("address", "missed"), NOWHERE)
@pytest.mark.parametrize("awaits", [False, True])
def test_E5_E6_E7_E8_what_is_refused_is_refused_without_a_database(
    address: str, missed: str, awaits: bool
) -> None:
    """The same by both engines, which only miss the database when all is well."""
    app = Towline(address, lock_timeout=0)
    plain, tasks = carrier(app, "plain", Any), carriers(app, REFUSED)

    def enqueue(task: Carry, value: Any, **options: Any) -> Any:
        bound = task.using(**options)
        return asyncio.run(bound.aenqueue(value)) if awaits else bound.enqueue(value)

    for nothing in ({}, {"on": object()}):
        for task, (_, value) in zip(tasks, REFUSED, strict=True):
            with pytest.raises(InvalidArguments, match="argument 'value'"):
                enqueue(task, value, **nothing)
        for name in REFUSED_NAMES:
            with pytest.raises(InvalidSetting, match="printable characters"):
                enqueue(plain, 1, after={name: 1}, **nothing)
        with pytest.raises(PayloadTooLarge, match="1,048,577 bytes"):
            enqueue(plain, over(LIMIT)[1], **nothing)
    with pytest.raises(UnsupportedConnection):
        enqueue(plain, 1, on=object())
    with pytest.raises(TowlineError, match=missed):
        enqueue(plain, 1)
    app.close()
