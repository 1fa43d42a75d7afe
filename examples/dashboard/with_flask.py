"""The dashboard in a Flask application, by a2wsgi.

flask --app examples.dashboard.with_flask run
"""

from __future__ import annotations

from typing import Any, cast

from a2wsgi import ASGIMiddleware
from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from towline import Towline, dashboard

app = Towline()
web = Flask(__name__)


@web.get("/")
def home() -> str:
    return "a page of the application"


# Without authorize= it answers this machine only: give it a function that looks at your sessions.
site = ASGIMiddleware(cast(Any, dashboard.asgi(app)))
web.wsgi_app = DispatcherMiddleware(web.wsgi_app, {"/admin/jobs": cast(Any, site)})  # type: ignore[method-assign]
