"""The application that the command line is tried on; its file is copied beside each database."""

import os
import signal
import time
from pathlib import Path

from towline import INJECTED, Context, Next, Towline

app = Towline(os.environ["SHOP_URL"])
nothing = 5


@app.task
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.task(max_attempts=1)
def bad(secret: str) -> None:
    raise ValueError("this cannot work")


@app.task(queue="mail")
def fetch(n: int) -> Next[int]:
    return add.then(n, 1)


@app.task
def join(ctx: Context = INJECTED) -> int:
    return sum(ctx.blockers)


@app.task
def say(text: str, ctx: Context = INJECTED) -> str:
    ctx.log.info("speaking", extra={"order": 7})
    return text


@app.task
def hold(name: str, ctx: Context = INJECTED) -> str:
    """Run until the file NAME.go is there; be told to stop by an error."""
    Path(f"{name}.began-{ctx.attempt}").touch()
    while not Path(f"{name}.go").exists():
        if ctx.stop.wait(0.02):
            raise RuntimeError("told to stop")
    return "went"


@app.task
def cling(name: str, ctx: Context = INJECTED) -> str:
    """Run until the file NAME.go is there, whatever one is told."""
    Path(f"{name}.began-{ctx.attempt}").touch()
    while not Path(f"{name}.go").exists():
        time.sleep(0.01)
    return "went"


@app.task
def leave(code: int, ctx: Context = INJECTED) -> str:
    """End the process without a word, the first time."""
    if ctx.attempt == 1:
        os._exit(code)
    return "survived"


@app.task(run_in="process")
def tell(text: str, ctx: Context = INJECTED) -> None:
    ctx.log.info(text)


@app.task
def die(ctx: Context = INJECTED) -> str:
    """Take the whole process along, the first time."""
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.task
def climb(name: str, ctx: Context = INJECTED) -> str:
    """Say how far it is; go on when the file NAME.go is there."""
    ctx.progress(0.25, "a quarter")
    Path(f"{name}.began-{ctx.attempt}").touch()
    while not Path(f"{name}.go").exists():
        time.sleep(0.01)
    return "there"


@app.task(max_attempts=2)
def refuse(text: str) -> None:
    raise LookupError(f"{text}\nand more")


@app.task(max_attempts=1, run_in="process")
def refuse_there(text: str) -> None:
    raise LookupError(text)
