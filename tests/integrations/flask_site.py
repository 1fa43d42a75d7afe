"""A Flask application made by a function, whose tasks say in which context they run."""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask, current_app, g, has_app_context

from towline import Towline
from towline.integrations.flask import init_app

app = Towline()


def create_app() -> Flask:
    site = Flask("site_of_tests")
    site.config["GREETING"] = "hello"
    init_app(site, app)

    @site.teardown_appcontext
    def note(error: BaseException | None) -> None:
        if "order" in g:
            with Path(os.environ["TORN_DOWN"]).open("a") as file:
                file.write(f"{g.order} {type(error).__name__}\n")

    return site


def greeting(order: int) -> str:
    """What the context of this attempt says; nothing of another's is in it."""
    assert has_app_context()
    assert "order" not in g
    g.order = order
    return f"{current_app.config['GREETING']} {order}"


@app.task
def in_thread(order: int) -> str:
    return greeting(order)


@app.task
async def on_loop(order: int) -> str:
    return greeting(order)


@app.task(run_in="process")
def in_process(order: int) -> str:
    return greeting(order)


@app.task(max_attempts=1)
def fails(order: int) -> None:
    greeting(order)
    raise ZeroDivisionError
