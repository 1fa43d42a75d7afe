"""Groups, maps, chunks and fan-out: each has the types of its members. Never run, only checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from towline import Call, Fail, Failure, Job, Next, Snooze, Task, Tasks, Towline
from towline.app.group import Group

app = Towline()
tasks = Tasks()


@tasks.task
def size(path: str) -> int:
    return len(path)


@tasks.task
def publish(album: int) -> str:
    return str(album)


@tasks.task
def split(doc: int) -> Next[str]:
    return publish.using(after=[size.call(str(n)) for n in range(80)]).then(doc)


@tasks.task
async def asplit(doc: int) -> str | Next[str]:
    if doc:
        return publish.using(after={"one": size.call("1"), "stored": 7}).then(doc)
    return "nothing"


assert_type(split.enqueue(1), Job[str])
assert_type(asplit.enqueue(1), Job[str])

calls: list[Call[int]] = [size.call("a"), size.using(delay=1).call("b")]
group = app.enqueue_group(calls, then=publish.call(7))
assert_type(group, Group[int])
assert_type(app.enqueue_group([publish.call(1)]), Group[str])
assert_type(app.group(7), Group[Any])
assert_type(group.results(), Iterator[int])
assert_type(group.results(60, failures="raise"), Iterator[int])
assert_type(group.results(failures="return"), Iterator[int | Failure])
assert_type(group.cancel("not wanted"), Group[int])
assert_type(group.refresh().ended, int)
assert_type(group.failed(), int)
assert_type(app.map((size.call(str(n)) for n in range(9)), in_flight=2), Iterator[int])


async def awaiting() -> None:
    made = await app.aenqueue_group(calls)
    assert_type(made, Group[int])
    assert_type(made.aresults(), AsyncIterator[int])
    assert_type(made.aresults(failures="return"), AsyncIterator[int | Failure])
    assert_type(await made.afailed(), int)
    assert_type(await app.agroup(7), Group[Any])
    async for number in app.amap(calls):
        assert_type(number, int)


@tasks.chunk(size=500, wait=1.0)
def index(docs: list[str]) -> None: ...


@tasks.chunk(size=500, queue="index", max_attempts=3)
def count(docs: list[str]) -> list[int]:
    return [len(doc) for doc in docs]


@app.chunk(size=500)
async def acount(docs: list[str]) -> list[int]:
    return [len(doc) for doc in docs]


@app.chunk(size=500)
async def aindex(docs: list[str]) -> None: ...


@tasks.chunk(size=10)
def mixed(docs: list[str]) -> list[int | Next[str] | Snooze | Fail]:
    return [publish.then(1), 2, Snooze(3), Fail("no")]


assert_type(index, Task[[str], None])
assert_type(count, Task[[str], int])
assert_type(acount, Task[[str], int])
assert_type(aindex, Task[[str], None])
assert_type(mixed, Task[[str], int | str])
assert_type(count.enqueue("a"), Job[int])
assert_type(app.enqueue_group([count.call("a")]), Group[int])
