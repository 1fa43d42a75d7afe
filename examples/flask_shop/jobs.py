"""What the shop does later. Handlers have Flask's context, so sessions are closed after each."""

from __future__ import annotations

from flask import current_app

from towline import Next, Towline

from .orders import URL, Order, session

app = Towline(URL)


@app.task(max_attempts=5, timeout=30)
def charge(order: int) -> Next[str]:
    """Take the money, then go on with the receipt."""
    found = session().get_one(Order, order)
    if found.state == "new":  # a payment service would be asked here, with a key of ours
        found.state = "charged"
        session().commit()
    return send_receipt.then(order)


@app.task(queue="mail")
def send_receipt(order: int) -> str:
    found = session().get_one(Order, order)
    found.state = "sent"
    session().commit()
    return f"{current_app.config['SHOP']}: one {found.item} for order {order}"
