"""What the shop does later. Each step may be repeated: handlers run at least once."""

from __future__ import annotations

from towline import Next, Towline

from .orders import URL, Order, sessions

app = Towline(URL)


@app.task(max_attempts=5, timeout=30)
async def charge(order: int) -> Next[str]:
    """Take the money, then go on with the receipt."""
    async with sessions() as session:
        found = await session.get_one(Order, order)
        if found.state == "new":  # a payment service would be asked here, with a key of ours
            found.state = "charged"
            await session.commit()
    return send_receipt.then(order)


@app.task(queue="mail")
async def send_receipt(order: int) -> str:
    async with sessions() as session:
        found = await session.get_one(Order, order)
        found.state = "sent"
        await session.commit()
        return f"one {found.item} for order {order}"
