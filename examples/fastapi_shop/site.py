"""The pages of the shop. The worker runs beside them, in the same process.

uvicorn examples.fastapi_shop.site:api
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from towline import NotFound
from towline.integrations.asgi import lifespan

from .jobs import app, charge
from .orders import Base, Order, engine, sessions


async def session() -> AsyncIterator[AsyncSession]:
    """Gives a session and closes it. It commits nothing: the answer would be out already."""
    async with sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(session)]


@asynccontextmanager
async def with_tables(site: Any) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


api = FastAPI(lifespan=lifespan(app, worker={"concurrency": 8}, inside=with_tables))


class Wanted(BaseModel):
    item: str


@api.post("/orders", status_code=201)
async def order(wanted: Wanted, session: Session) -> dict[str, int]:
    """The order and its job: both are there after the commit, or neither."""
    new = Order(item=wanted.item)
    session.add(new)
    await session.flush()
    job = await charge.using(on=session).aenqueue(new.id)
    if not wanted.item.strip():
        raise HTTPException(422, "an order of nothing")
    await session.commit()
    return {"order": new.id, "job": job.id}


@api.get("/orders/{number}")
async def state(number: int, session: Session) -> dict[str, str]:
    found = await session.get(Order, number)
    if found is None:
        raise HTTPException(404)
    return {"item": found.item, "state": found.state}


@api.get("/jobs/{number}")
async def job(number: int) -> dict[str, Any]:
    """How far an order's jobs are: the chain, with what it ended with."""
    try:
        chain = await app.achain(number)
    except NotFound:
        raise HTTPException(404) from None
    return {"state": str(chain.state), "output": chain.output}
