"""What limits each figure of `towline bench`: where the time of an operation goes.

The CPU time of this process is measured. A sync of the disk and a round trip to the server are
measured by themselves, so what they take of an operation is an estimate; it is said in numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from ...app import Towline
from .measure import SLOTS, THREADS, Figure

CPU, DISK, SERVER = "cpu", "disk", "server"
MOST = 0.6  # of the time: what takes as much is what limits
DAY = timedelta(days=1)


class Limit(Struct, frozen=True):
    """What limits a figure, in one word for programs and in a few for people."""

    kind: str
    text: str


class Handlers(Struct, frozen=True):
    """The application's own handlers in the last day: how many ran, and their mean in seconds."""

    count: int
    mean: float

    @property
    def rate(self) -> float:
        """Jobs per second that one worker's slots can do of them."""
        return SLOTS / self.mean


def limits_of(figures: Mapping[str, Figure], *, is_file: bool, durable: bool) -> dict[str, Limit]:
    """What limits each of the figures that are not limits themselves."""
    sync, trip = figures["sync"], figures.get("round_trip")
    wait = max(sync.each - (trip.each if trip else 0.0), 0.0)  # of a commit, without its way
    alone = Alone(wait if durable else 0.0, trip)
    found = {
        "enqueue": alone.limit(figures["enqueue"]),
        "enqueue_threads": crowded(figures["enqueue_threads"], sync if durable else None, is_file),
        "bulk": many(figures["bulk"], is_file),
        "drain": many(figures["drain"], is_file),
        "start": alone.limit(figures["start"]),
    }
    if "enqueue_not_durable" in figures:
        found["enqueue_not_durable"] = Alone(0.0, trip).limit(figures["enqueue_not_durable"])
    return found


class Alone(Struct, frozen=True):
    """One operation at a time: a commit waits so many seconds for the disk."""

    wait: float
    trip: Figure | None

    def limit(self, figure: Figure) -> Limit:
        """CPU or waiting, whichever is more; and of the waiting, what for."""
        each, cpu = figure.each, min(figure.cpu_each, figure.each)
        waits = each - cpu
        if cpu >= waits:
            return Limit(CPU, f"CPU: {of(cpu, each)}")
        disk = min(self.wait, waits)
        if disk >= waits / 2:
            whose = "the disk: a sync" if self.trip is None else "the server's disk: a commit"
            return Limit(DISK, f"{whose} takes {of(disk, each)}")
        if self.trip is not None:
            way = f"a round trip takes {span(self.trip.each)}"
            return Limit(SERVER, f"round trips and the server: {of(waits - disk, each)}; {way}")
        sync = f"; a sync by itself takes {span(disk)}" if disk else ""
        return Limit(DISK, f"the disk, or other processes: {of(waits, each)}{sync}")


def crowded(figure: Figure, sync: Figure | None, is_file: bool) -> Limit:
    """Several threads at a time, whose commits share syncs."""
    share = figure.cpu_each / figure.each
    if share >= MOST or (is_file and sync is None):
        return Limit(CPU, f"CPU, {percent(share)} busy: one thread at a time")
    if is_file and sync is not None:
        shared = figure.rate / sync.rate
        if shared > 1:
            return Limit(DISK, f"the disk: {shared:.1f} of them in the time of one sync")
        return Limit(DISK, f"the disk, or other processes: CPU {percent(share)} busy")
    waits = max(THREADS * figure.each - figure.cpu_each, 0.0)
    return Limit(SERVER, f"the server: each of {THREADS} waits {span(waits)} for it")


def many(figure: Figure, is_file: bool) -> Limit:
    """Many jobs in a transaction, so that syncs and round trips hardly count."""
    share = figure.cpu_each / figure.each
    if share >= MOST:
        return Limit(CPU, f"CPU: {of(figure.cpu_each, figure.each)}")
    if is_file:
        return Limit(DISK, f"the disk, or other processes: CPU {percent(share)} busy")
    return Limit(SERVER, f"the server: this process is {percent(share)} busy")


def handlers_of(app: Towline, now: datetime) -> Handlers | None:
    """How long the application's own handlers take, by its history; None when there is none."""
    ended = app.stats(since=now - DAY)
    count = sum(sum(each.run.histogram) for each in ended)
    taken = sum(each.run.total for each in ended)
    return Handlers(count, taken / count) if count and taken > 0 else None


def of(part: float, whole: float) -> str:
    return f"{span(part)} of {span(whole)}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def span(seconds: float) -> str:
    """A short time in the unit that suits it."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds:.0f} s"
    return f"{seconds / 1e-9:.0f} ns"
