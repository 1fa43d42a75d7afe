"""The example applications: orders with their jobs, on both engines."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.dashboard.serving import served
from tests.database import opened
from tests.until import until
from towline.testing import drain


@pytest.fixture(params=["sqlite", "postgres"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """An empty database, to which what is imported now belongs."""
    for name in [name for name in sys.modules if name.startswith("examples.")]:
        monkeypatch.delitem(sys.modules, name)
    name = servers.servers()[-1] if request.param == "postgres" else request.param
    with opened(name, tmp_path) as database:
        monkeypatch.setenv("TOWLINE_URL", database.url)
        yield database.url


def test_E1_I9_the_shop_of_fastapi(url: str) -> None:
    site: Any = importlib.import_module("examples.fastapi_shop.site")
    with served(site.api, lifespan="on") as client:
        assert client.post("/orders", json={"item": " "}).status_code == 422
        assert list(site.app.jobs()) == []
        stored = client.post("/orders", json={"item": "kettle"})
        assert stored.status_code == 201
        found = stored.json()

        def ended() -> dict[str, Any] | None:
            chain: dict[str, Any] = client.get(f"/jobs/{found['job']}").json()
            return chain if chain["state"] == "completed" else None

        assert until(ended, "its jobs run")["output"] == f"one kettle for order {found['order']}"
        order = client.get(f"/orders/{found['order']}").json()
        assert order == {"item": "kettle", "state": "sent"}
        assert client.get("/orders/999").status_code == 404
        assert client.get("/jobs/999").status_code == 404
    assert list(site.app.workers()) == []
    site.app.close()


def test_E1_I10_the_shop_of_flask(url: str) -> None:
    site: Any = importlib.import_module("examples.flask_shop.site")
    web = site.create_app("Anchor")
    client = web.test_client()
    assert client.post("/orders", json={"item": " "}).status_code == 422
    assert list(site.app.jobs()) == []
    found = client.post("/orders", json={"item": "kettle"}).get_json()
    assert drain(site.app) == 2
    chain = client.get(f"/jobs/{found['job']}").get_json()
    assert chain == {
        "state": "completed",
        "output": f"Anchor: one kettle for order {found['order']}",
    }
    assert client.get("/jobs/999").status_code == 404
    site.app.close()
    site.engine.dispose()


def test_every_example_is_explained() -> None:
    root = Path(__file__).parents[2] / "examples"
    for name in ("fastapi_shop", "flask_shop"):
        assert 8 <= len((root / name / "README.md").read_text().splitlines()) <= 14
