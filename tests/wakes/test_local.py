"""A worker in the process that enqueues is rung also where the engine hears nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests import servers
from towline import Towline
from towline.errors import InvalidSetting
from towline.worker import lookout

LIMIT = 30.0


@pytest.fixture
def url() -> Iterator[str]:
    with servers.server(servers.servers()[-1]).database() as url:
        yield url


@pytest.mark.parametrize("deaf", [{"notify": False}, {"pooler": True}], ids=["silent", "pooled"])
def test_Q4_a_worker_of_the_same_process_is_rung(
    url: str, deaf: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "LOOK_INTERVAL", 10 * LIMIT)  # it would never look by itself
    app = Towline(url, **deaf)

    @app.task
    def double(number: int) -> int:
        return 2 * number

    async def ask() -> int:
        return await (await double.aenqueue(21)).aresult(LIMIT)

    for _ in range(2):  # again after a stop, and no ring is left behind
        with app.worker(lease=100 * LIMIT):
            double.enqueue(0).result(LIMIT)
            assert double.enqueue(2).result(LIMIT) == 4
            assert asyncio.run(ask()) == 42
        assert app.runner.local.rings == []
    app.close()


def test_an_address_to_listen_at_is_a_text(url: str) -> None:
    with pytest.raises(InvalidSetting, match="notify=False"):
        Towline(url, listen=False)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
