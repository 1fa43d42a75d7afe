"""A Starlette application with a worker beside its requests, for a server of its own."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from towline import INJECTED, Context, Towline
from towline.integrations.asgi import lifespan

app = Towline()


@app.task
async def linger(until: str, ctx: Context = INJECTED) -> int:
    """Awaits for ever, but for its last attempt."""
    if ctx.attempt < 2:
        await asyncio.Event().wait()
    return ctx.attempt


@app.task
def block(until: str, ctx: Context = INJECTED) -> int:
    """The same in a thread, asked to stop or not."""
    while ctx.attempt < 2:
        ctx.stop.wait(0.05)
    return ctx.attempt


async def start(request: Request) -> JSONResponse:
    towline: Towline = request.state.towline
    task = towline.registry[request.path_params["task"]]
    return JSONResponse({"job": (await task.aenqueue("the end")).id})


api = Starlette(
    routes=[Route("/start/{task}", start, methods=["POST"])],
    lifespan=lifespan(app, worker={"grace": 0.5, "concurrency": 4}),
)
