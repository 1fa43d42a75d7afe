"""The pages of the shop, made by a function, as Flask's own documents have it.

flask --app examples.flask_shop.site run
flask --app examples.flask_shop.site towline worker
"""

from __future__ import annotations

from typing import Any

from flask import Flask, abort, request

from towline import NotFound
from towline.integrations.flask import init_app

from .jobs import app, charge
from .orders import Base, Order, close_session, engine, session


def create_app(name: str = "Towline shop") -> Flask:
    site = Flask(__name__)
    site.config["SHOP"] = name
    site.teardown_appcontext(close_session)
    init_app(site, app)
    app.migrate()  # before the first transaction of a request, in which it cannot be done
    Base.metadata.create_all(engine)
    site.post("/orders")(order)
    site.get("/jobs/<int:number>")(job)
    return site


def order() -> tuple[dict[str, int], int]:
    """The order and its job: both are there after the commit, or neither."""
    new = Order(item=request.get_json()["item"])
    session().add(new)
    session().flush()
    stored = charge.using(on=session()).enqueue(new.id)
    if not new.item.strip():
        abort(422)
    session().commit()
    return {"order": new.id, "job": stored.id}, 201


def job(number: int) -> dict[str, Any]:
    """How far an order's jobs are: the chain, with what it ended with."""
    try:
        chain = app.chain(number)
    except NotFound:
        abort(404)
    return {"state": str(chain.state), "output": chain.output}
