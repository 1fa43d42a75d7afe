"""Tasks that fan out from a process of their own. The database is the one the environment names."""

from __future__ import annotations

from towline import INJECTED, Context, Next, Towline

app = Towline()


@app.task
def part(number: int) -> int:
    return number


@app.task
def merge(ctx: Context = INJECTED) -> int:
    return sum(ctx.blockers)


@app.task(run_in="process")
def split(size: int) -> Next[int]:
    return merge.using(after=[part.call(number) for number in range(size)]).then()
