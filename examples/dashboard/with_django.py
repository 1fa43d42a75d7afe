"""The dashboard beside a Django project (ASGI).

    uvicorn examples.dashboard.with_django:application

In a project of yours this is asgi.py; the settings below are only there to make one file of it.
"""

from __future__ import annotations

import os

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from starlette.applications import Starlette
from starlette.routing import Mount

from towline import Towline, dashboard

if not settings.configured:
    settings.configure(
        SECRET_KEY=os.urandom(16).hex(), ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DEBUG=False
    )
    django.setup()

app = Towline()


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"a page of the project")


urlpatterns = [path("", home)]

# Without authorize= it answers this machine only: give it a function that looks at your sessions.
application = Starlette(
    routes=[
        Mount("/admin/jobs", dashboard.asgi(app)),
        Mount("/", get_asgi_application()),
    ]
)
