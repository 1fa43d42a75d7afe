"""Groups, maps and chunks used wrongly: exactly the lines that end in `# no`."""

from __future__ import annotations

from towline import Next, Tasks, Towline

app = Towline()
tasks = Tasks()


@tasks.task
def size(path: str) -> int:
    return len(path)


@tasks.task
def publish(album: int) -> str:
    return str(album)


@tasks.task
def wrong_call(doc: int) -> Next[str]:
    return publish.using(after=[size.call(doc)]).then(doc)  # no


@tasks.task
def wrong_end(doc: int) -> Next[int]:
    return publish.using(after=[size.call("a")]).then(doc)  # no


group = app.enqueue_group([size.call("a")])
app.enqueue_group([size.enqueue("a")])  # no
app.enqueue_group([size.call("a")], then=publish)  # no
app.enqueue_group([size.call("a")], after=[])  # no
group.results(failures="ignore")  # no
words: list[str] = list(group.results())  # no
numbers: list[int] = list(group.results(failures="return"))  # no
app.map([size.call("a")], in_flight="2")  # no
app.map(size)  # no


@tasks.chunk(size=5)
def index(docs: list[str]) -> list[int]:
    return [len(doc) for doc in docs]


index.enqueue(["a"])  # no
index.enqueue(1)  # no
index.enqueue()  # no
text: str = index.enqueue("a").result()  # no
tasks.chunk()  # no
tasks.chunk(size="5")  # no
tasks.chunk(size=5, every=1)  # no


@tasks.chunk(size=5)  # no
def one_item(doc: str) -> None: ...


@tasks.chunk(size=5)  # no
def one_result(docs: list[str]) -> int:
    return 1
