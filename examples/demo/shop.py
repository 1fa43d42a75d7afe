"""The application of the demo: a small shop and its tasks, in tables of their own."""

from __future__ import annotations

from towline import INJECTED, Backoff, Context, Next, Towline

PREFIX = "towline_demo_"
CROWD = "crowd"  # the queue of the many small jobs
WAITING = 60.0  # seconds the job waits whose worker is killed meanwhile

app = Towline("sqlite:///towline-demo.db", prefix=PREFIX)


def engine() -> str:
    """Which database the shop is on."""
    return "sqlite" if app.url.startswith("sqlite:") else "postgres"


class TerminalBusy(Exception):
    """What the first try to charge a card meets."""


@app.task(backoff=Backoff(first=0.2, jitter=0))
def charge(order: int, ctx: Context = INJECTED) -> Next[str]:
    if ctx.attempt == 1:
        raise TerminalBusy("the card terminal is busy")
    return pack.then(order)


@app.task
def pack(order: int) -> Next[str]:
    return ship.then(order, 12.5)


@app.task
async def ship(order: int, kilos: float) -> str:
    return f"order {order} shipped, {kilos:g} kg"


@app.task
def resize(picture: int) -> int:
    return 40 + picture  # the size of the small one, in KB


@app.task
async def publish(album: str, ctx: Context = INJECTED) -> str:
    return f"{album}: {len(ctx.blockers)} pictures, {sum(ctx.blockers)} KB"


@app.task
def send_receipt(order: int) -> str:
    return f"receipt for order {order}"


@app.task
def count_stock(ctx: Context = INJECTED) -> str:
    if ctx.attempt == 1:
        ctx.progress(text="counting")
        ctx.stop.wait(WAITING)  # its worker does not live to see the end of this
    return f"counted in attempt {ctx.attempt}"


@app.task(queue=CROWD)
def add(a: int, b: int) -> int:
    return a + b
