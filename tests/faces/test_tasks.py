"""Registration, names, sets of tasks, and settings that make no sense."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from towline import Backoff, Next, Task, Tasks, Towline
from towline.errors import InvalidSetting, InvalidTask
from towline.task.options import Options

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    """An app that opens its database only when a test stores something."""
    return make_app()


def plain(a: int) -> int:
    """What it does."""
    return a + 1


# ---- registration


def test_a_task_is_still_the_function(app: Towline) -> None:
    task = app.task(plain)
    assert task(2) == 3
    assert (task.name, task.__doc__, task.__wrapped__) == ("plain", "What it does.", plain)
    assert app.registry == {"plain": task}
    assert repr(task) == "<task plain>"
    assert (task.__name__, task.__qualname__, task.__module__) == ("plain", "plain", __name__)
    assert inspect.signature(task) == inspect.signature(plain)


def test_settings_of_a_task_are_defaults_of_its_jobs(app: Towline) -> None:
    backoff = Backoff(first=2)
    task = app.task(
        name="mail.send", queue="mail", priority=5, max_attempts=2, timeout=30, backoff=backoff,
        run_in="process",
    )(plain)  # fmt: skip
    assert (task.name, task.backoff, task.run_in) == ("mail.send", backoff, "process")
    record = task.enqueue(1).record
    assert (record.task, record.queue, record.priority) == ("mail.send", "mail", 5)
    assert (record.max_attempts, record.timeout) == (2, 30_000_000)


def test_defaults(app: Towline) -> None:
    record = app.task(plain).enqueue(1).record
    assert (record.queue, record.priority, record.max_attempts) == ("default", 0, 5)
    assert (record.timeout, record.label, record.key, record.trace) == (None, None, None, None)


def test_one_name_one_task(app: Towline) -> None:
    app.task(plain)
    with pytest.raises(InvalidTask, match=r"a task named plain already; give one .* another name="):
        app.task(plain)
    assert app.task(name="other")(plain).name == "other"


def test_a_task_is_not_made_twice(app: Towline) -> None:
    task = app.task(plain)
    with pytest.raises(InvalidTask, match="plain is a task already"):
        app.task(task)


def test_what_hangs_on_a_function_does_not_change_its_task(app: Towline) -> None:
    """Finding S6: the task looks like its function, and is what its settings say."""

    def marked() -> None: ...

    marked.queue = "nowhere"  # type: ignore[attr-defined] # pyright: ignore[reportFunctionMemberAccess]
    marked.name = "another"  # type: ignore[attr-defined] # pyright: ignore[reportFunctionMemberAccess]
    task = app.task(marked)
    assert (task.name, task.queue) == ("marked", "default")


class Shop:
    def send(self, number: int) -> None: ...

    @classmethod
    def open(cls) -> None: ...

    @staticmethod
    def close(number: int) -> int:
        return number


@pytest.mark.parametrize("method", [Shop.send, Shop().send, Shop.open, Shop.__dict__["open"]])
def test_S7_a_method_is_no_task(app: Towline, method: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTask, match="is a method: a task is a plain function"):
        app.task(method)
    assert app.registry == {}


def test_S7_a_static_method_and_a_function_with_a_self_are(app: Towline) -> None:
    def greet(self: str) -> str:
        return self

    assert app.task(Shop.close)(5) == 5
    assert app.task(greet)("a") == "a"


def test_a_lambda_needs_a_name(app: Towline) -> None:
    with pytest.raises(InvalidTask, match="use a def, or say name="):
        app.task(lambda: 1)
    assert app.task(name="one")(lambda: 1)() == 1


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"name": ""}, "a task needs a name"),
        ({"name": "a\n"}, r"task name 'a\\n' must be 1 to 200 printable characters"),
        ({"name": "a" * 201}, "must be 1 to 200 printable characters"),
        ({"queue": ""}, "queue '' must be 1 to 200 printable characters"),
        ({"queue": 3}, "queue is text of printable characters, not int"),
        ({"retries": 3}, r"task\(\) does not know retries=. It takes name, .*max_attempts"),
        ({"prioritty": 3}, r"task\(\) does not know prioritty= \(did you mean priority=\?\)"),
        ({"priority": 1.5}, "priority is a whole number, not 1.5"),
        ({"priority": True}, "priority is a whole number, not True"),
        ({"priority": 2**31}, "priority 2147483648 is beyond"),
        ({"max_attempts": 0}, "max_attempts is a whole number from 1"),
        ({"max_attempts": 10**30}, "max_attempts is a whole number from 1 to 2147483647"),
        ({"timeout": 0}, "timeout is a positive duration, not 0"),
        ({"timeout": float("nan")}, "timeout must be a finite number of seconds"),
        (
            {"timeout": timedelta.max},
            "timeout must be a finite number of seconds, not .* .at most 10000000000",
        ),
        ({"timeout": "5"}, "timeout is seconds or a timedelta, not str"),
        ({"run_in": "fork"}, 'run_in is "thread" or "process", not \'fork\''),
    ],
)
def test_settings_of_a_task_that_make_no_sense(
    app: Towline, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises((InvalidSetting, InvalidTask), match=text):
        app.task(**settings)(plain)
    assert app.registry == {}


# ---- sets of tasks


def test_a_set_is_included_under_a_prefix(app: Towline) -> None:
    tasks = Tasks()
    task = tasks.task(plain)
    with pytest.raises(InvalidTask, match=r"no app includes yet: call app\.include\(tasks\) first"):
        task.enqueue(1)
    app.include(tasks, prefix="billing.")
    assert app.registry == {"billing.plain": task}
    job = task.enqueue(1)
    assert job.task == "billing.plain"
    with pytest.raises(Exception, match=r"^billing\.plain\(a: int\) -> int: unknown argument 'b'"):
        task.enqueue(1, b=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_two_sets_may_use_one_name_under_two_prefixes(app: Towline) -> None:
    first, second = Tasks(), Tasks()
    first.task(plain)
    second.task(plain)
    app.include(first, "a.")
    app.include(second, "b.")
    assert sorted(app.registry) == ["a.plain", "b.plain"]


def other(a: int) -> int:
    return a


def test_a_set_is_included_whole_or_not_at_all(app: Towline) -> None:
    app.task(plain)
    tasks = Tasks()
    tasks.task(other)
    tasks.task(plain)
    with pytest.raises(InvalidTask, match="a task named plain already"):
        app.include(tasks)
    assert list(app.registry) == ["plain"]
    app.include(tasks, "late.")
    assert sorted(app.registry) == ["late.other", "late.plain", "plain"]


def test_a_set_belongs_to_one_app(app: Towline, make_app: Callable[..., Towline]) -> None:
    tasks = Tasks()
    task = tasks.task(plain)
    app.include(tasks)
    second = make_app()
    with pytest.raises(InvalidTask, match="plain already belongs to another app"):
        second.include(tasks)
    assert second.registry == {}
    assert task.enqueue(1).task == "plain"


def test_a_prefix_makes_a_name_that_could_stand_alone(app: Towline) -> None:
    tasks = Tasks()
    tasks.task(plain)
    for prefix in ("a\n", "a" * 200):
        with pytest.raises(InvalidSetting, match="must be 1 to 200 printable characters"):
            app.include(tasks, prefix)
    assert app.registry == {}


# ---- options of a call


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay": 1, "at": datetime.now().astimezone()}, "say delay= or at=, not both"),
        ({"delay": -1}, "delay= cannot be negative"),
        ({"delay": float("inf")}, "delay must be a finite number of seconds, not inf"),
        ({"delay": "1"}, "delay is seconds or a timedelta, not str"),
        ({"delay": 1e300}, "delay must be a finite number of seconds, not .* .at most 10000000000"),
        (
            {"delay": timedelta.max},
            "delay must be a finite number of seconds, not .* .at most 10000000000",
        ),
        ({"at": datetime(2030, 1, 1)}, "at= is a datetime with a time zone, such as"),  # noqa: DTZ001
        ({"at": "2030-01-01"}, "at= is a datetime with a time zone"),
        ({"key": "k", "scope": "all"}, 'scope is "open" or "any", not \'all\''),
        ({"key": "k", "window": 5}, 'window= is a positive duration and goes with scope="any"'),
        ({"key": "k", "scope": "any", "window": 0}, "window= is a positive duration"),
        (
            {"key": "k", "scope": "any", "window": 1e300},
            "window must be a finite number of seconds, not .* .at most 10000000000",
        ),
        ({"key": "k", "on_conflict": "skip"}, 'on_conflict is "return", "raise", "replace", '),
        ({"on_blocker_failure": "skip"}, 'on_blocker_failure is "fail", "wait" or "run"'),
        ({"scope": "any"}, "scope=, window= and on_conflict= need a key="),
        ({"on_conflict": "raise"}, "need a key="),
        ({"key": ""}, "key '' must be 1 to 200 printable characters"),
        ({"key": "\ud800"}, "must be 1 to 200 printable characters"),
        ({"key": 5}, "key is text of printable characters, not int"),
        ({"label": "a\x00"}, "label .* must be 1 to 200 printable characters"),
        ({"queue": "q" * 201}, "queue .* must be 1 to 200 printable characters"),
        ({"priority": "high"}, "priority is a whole number, not 'high'"),
        ({"max_attempts": True}, "max_attempts is a whole number from 1"),
        ({"timeout": -1}, "timeout is a positive duration"),
        ({"trace": "abc"}, "trace= is a W3C traceparent, not 'abc'"),
        ({"trace": 5}, "trace= is a W3C traceparent, not 5"),
        ({"trace": TRACE + "\n"}, "trace= is a W3C traceparent"),
        ({"trace": TRACE.upper()}, "trace= is a W3C traceparent"),
    ],
)
def test_options_that_make_no_sense(app: Towline, options: dict[str, Any], text: str) -> None:
    task = app.task(plain)
    with pytest.raises(InvalidSetting, match=text):
        task.using(**options)
    with pytest.raises(InvalidSetting, match=text):
        task.using(label="l").using(**options)


def test_an_unknown_option_is_refused(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="prioritty"):
        app.task(plain).using(prioritty=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_options_add_up(app: Towline) -> None:
    bound = app.task(plain).using(label="l", priority=1).using(priority=2)
    record = bound.enqueue(1).record
    assert (record.label, record.priority) == ("l", 2)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ("12", "after= is a list of jobs, or a dict of them by name"),
        (7, "after= is a list of jobs, or a dict of them by name"),
        ([None], "after= takes jobs, chains, calls or chain ids, not NoneType"),
        ([True], "after= takes jobs, chains, calls or chain ids, not bool"),
        ({"": 1}, "the name of a blocker '' must be 1 to 200"),
        ({1: 1}, "the name of a blocker is text of printable characters, not int"),
    ],
)
def test_what_one_cannot_wait_for(app: Towline, after: Any, text: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(text)):
        app.task(plain).using(after=after).enqueue(1)
    assert len(app.jobs()) == 0


def test_a_continuation_takes_no_key_and_no_connection(app: Towline) -> None:
    task = app.task(plain)
    with pytest.raises(InvalidSetting, match="takes no key="):
        task.using(key="k").then(1)
    with pytest.raises(InvalidSetting, match="takes no on="):
        task.using(on=object()).then(1)
    assert isinstance(task.using(delay=5).then(1), Next)


@pytest.mark.parametrize("again", [False, True])
def test_an_option_that_using_does_not_know_is_named(app: Towline, again: bool) -> None:
    task = app.task(plain)
    using: Any = task.using(priority=1).using if again else task.using
    with pytest.raises(
        InvalidSetting, match=r"using\(\) does not know prio= \(did you mean priority=\?\)"
    ):
        using(prio=3)


def test_a_setting_that_a_worker_does_not_know_is_named(app: Towline) -> None:
    worker: Any = app.worker
    with pytest.raises(InvalidSetting, match=r"worker\(\) does not know concurency= .*concurrency"):
        worker(concurency=3)


def test_a_name_that_is_no_text_is_not_called_unprintable(app: Towline) -> None:
    using: Any = app.task(plain).using
    with pytest.raises(InvalidSetting, match="key is text of printable characters, not int"):
        using(key=5)


def test_a_task_with_options_shows_them(app: Towline) -> None:
    task = app.task(plain)
    assert (
        repr(task.using(queue="mail", priority=3)) == "<task plain using priority=3, queue='mail'>"
    )
    assert repr(task.using()) == "<task plain>"


def test_D4_a_queue_that_no_task_declares_is_mentioned_once(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    task = app.task(queue="mail")(plain)
    with caplog.at_level(logging.WARNING, "towline"):
        task.enqueue(1)
        assert caplog.messages == []
        for _ in range(2):
            task.using(queue="bulk").enqueue(1)
    (message,) = caplog.messages
    assert message.startswith("no task of this app declares queue 'bulk'; a worker serves it only")


def test_options_are_checked_when_made() -> None:
    assert Options(trace=TRACE).trace == TRACE
    assert Options(delay=10**10).delay == 10**10


# ---- settings of an app


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lock_timeout": -1}, "lock_timeout cannot be negative"),
        ({"lock_timeout": None}, "lock_timeout is seconds or a timedelta, not NoneType"),
        ({"payload_limit": 0}, "payload_limit is a number of bytes from 1"),
        ({"keep_completed": -1}, "a retention time cannot be negative; None keeps for ever"),
        ({"keep_failed": "week"}, "a retention time is seconds or a timedelta, not str"),
        ({"prefix": "x; DROP TABLE"}, "must be lower-case letters, digits and underscores"),
        ({"prefix": "a_\n"}, "must be lower-case letters, digits and underscores"),
        ({"schema": "a.b"}, "must be lower-case letters, digits and underscores"),
        ({"connections": 0}, "connections is a number from 1"),
        ({"url": "postgresql://h/db?nonsense=1"}, "a URL is postgresql://user@host/database"),
    ],
)
def test_settings_of_an_app_that_make_no_sense(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        Towline(**settings)


def test_a_task_outside_any_set_says_so() -> None:
    task: Task[[int], int] = Task(plain)
    assert task(1) == 2
    with pytest.raises(InvalidTask, match="belongs to a set of tasks that no app includes yet"):
        task.enqueue(1)
