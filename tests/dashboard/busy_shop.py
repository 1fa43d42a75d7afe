"""A shop that has been busy for two hours: jobs of every kind and state, for pictures.

The past is played on a clock that moves, by `towline.testing`; what runs now is held by a real
worker for as long as the pictures need it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from tests.until import until
from towline import INJECTED, Backoff, Context, Cron, Next, Secret, Towline
from towline.store.ground import host_clock
from towline.task import Call
from towline.testing import Clock, drain

MINUTES = 120
PER_MINUTE = (8, 26)


class PaymentDeclined(Exception):
    """The bank says no."""


class BusyShop:
    """The shop's app, its tasks, and the ids of jobs worth a picture."""

    def __init__(self, url: str) -> None:
        self.app = Towline(url, durable=False, clock=self._time)
        self.jobs: dict[str, int] = {}
        past = Clock(datetime.now(UTC) - timedelta(minutes=MINUTES))
        self._past: Clock | None = past
        self._luck = random.Random(8)
        self._open = threading.Event()  # what runs now may end
        self._declare()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """With a past, and a worker that has its hands full."""
        assert self._past is not None, "a shop works once"
        self._play(self._past)
        self._past = None
        self._store_the_present()
        with self.app.worker(concurrency=12):
            shown = [self.jobs["running"], self.jobs["open chain"]]
            until(
                lambda: all(self.app.job(id).progress for id in shown), "they say how far they are"
            )
            self._store_what_waits()
            self._let_people_act()
            try:
                yield
            finally:
                self._open.set()
        self.app.close()

    def _time(self) -> int:
        return self._past() if self._past is not None else host_clock()

    # ---- what the shop does

    def _takes(self, seconds: float) -> None:
        """In the past time passes by itself; in the present until the pictures are taken."""
        if self._past is not None:
            self._past.advance(seconds * self._luck.lognormvariate(0, 0.6))
        else:
            self._open.wait()

    def _declare(self) -> None:
        app, luck = self.app, self._luck

        @app.task(queue="mail")
        def send_receipt(order: int, email: str) -> str:
            """Mail the receipt of an order to its customer."""
            self._takes(0.12)
            return f"receipt-{order}@shop.example"

        @app.task(queue="payments", priority=5, backoff=Backoff(never=(PaymentDeclined,)))
        def charge_card(
            order: int, amount: float, card: Annotated[str, Secret], tags: list[str]
        ) -> dict[str, Any]:
            """Take the money for an order."""
            self._takes(0.4)
            if luck.random() < 0.06:
                raise PaymentDeclined(f"order {order}: insufficient funds")
            return {"order": order, "paid": amount, "authorization": "A-1", "settled": True}

        @app.task(max_attempts=4, backoff=Backoff(first=20, jitter=0))
        def sync_stock(warehouse: str) -> int:
            """Count what a warehouse has, and tell the shop."""
            self._takes(1.5)
            if warehouse == "Porto" or luck.random() < 0.15:
                raise TimeoutError(f"warehouse {warehouse} does not answer")
            return luck.randint(100, 900)

        @app.task(queue="media")
        def resize_photo(photo: int, widths: list[int]) -> list[str]:
            """Make the sizes of a photo that pages need."""
            self._takes(0.7)
            return [f"{photo}-{width}.webp" for width in widths]

        @app.task(queue="reports")
        def export_orders(day: str, ctx: Context = INJECTED) -> Next[str]:
            """Write a day's orders into a file; goes on with its upload."""
            ctx.progress(0.38, "3,800 of 10,000 orders")
            self._takes(2.4)
            return upload_export.then(f"orders-{day}.csv")

        @app.task(queue="reports", backoff=Backoff(first=9, jitter=0))
        def upload_export(file: str, ctx: Context = INJECTED) -> Next[str]:
            self._takes(1.8)
            if ctx.attempt == 1:
                raise ConnectionResetError("storage.example closed the connection")
            return announce_export.then(file)

        @app.task(queue="reports")
        def announce_export(file: str) -> str:
            self._takes(0.5)
            return f"told 3 people about {file}"

        @app.task(queue="media")
        def import_catalogue(supplier: str, ctx: Context = INJECTED) -> int:
            """Read a supplier's catalogue, product by product."""
            ctx.progress(0.62, "6,200 of 10,000 products")
            self._takes(20)
            return 10_000

        @app.task(queue="media")
        def publish_catalogue(season: str) -> str:
            """Put a catalogue online once all its parts are there."""
            self._takes(1)
            return f"/catalogue/{season}"

        @app.task(queue="suppliers", lane="supplier")
        def order_goods(supplier: str, goods: int) -> str:
            """Order what is missing; a supplier takes only so many orders at a time."""
            self._takes(0.2)
            return f"{supplier}-{goods}"

        self.order_goods = order_goods
        self.send_receipt, self.charge_card, self.sync_stock = send_receipt, charge_card, sync_stock
        self.resize_photo, self.export_orders = resize_photo, export_orders
        self.import_catalogue, self.publish_catalogue = import_catalogue, publish_catalogue

    # ---- the past and the present

    def _play(self, clock: Clock) -> None:
        luck = self._luck
        self.app.migrate()
        self._set_schedules()
        for minute in range(MINUTES):
            for _ in range(luck.randint(*PER_MINUTE)):
                self._store_something()
            if minute == MINUTES - 40:
                self.jobs["chain"] = self.export_orders.enqueue("2027-01-14").id
            if minute == MINUTES - 20:
                self.jobs["failed"] = self.sync_stock.using(label="hourly").enqueue("Porto").id
            if minute == MINUTES - 3:
                self._store_graph()
            next_minute = clock() + 60_000_000
            drain(self.app, raising=False)
            clock.advance_to(next_minute)

    def _set_schedules(self) -> None:
        app = self.app
        app.set_schedule("stock, Turin", self.sync_stock.call("Turin"), Cron(every=600))
        app.set_schedule("stock, Porto", self.sync_stock.call("Porto"), "*/20 * * * *")
        weekdays = Cron("30 7 * * mon-fri", tz="Europe/Berlin", jitter=60, overlap="queue")
        app.set_schedule("orders for Berlin", self.export_orders.call("today"), weekdays)
        monthly = Cron("0 4 1 * *", tz="America/New_York")
        app.set_schedule("catalogue", self.publish_catalogue.call("month"), monthly)

    def _store_something(self) -> None:
        order = self._luck.randint(10_000, 99_999)
        self._luck.choice(
            (
                lambda: self.send_receipt.enqueue(order, f"ann{order}@example.com"),
                lambda: self.send_receipt.enqueue(order, f"bob{order}@example.com"),
                lambda: self._charge(order),
                lambda: self.resize_photo.enqueue(order, [320, 640, 1280]),
                lambda: self.sync_stock.enqueue(self._luck.choice(("Lyon", "Gdansk", "Turin"))),
            )
        )()

    def _charge(self, order: int) -> None:
        job = self.charge_card.using(key=f"order-{order}").enqueue(
            order, 49.9, "4111 1111 1111 1111", ["web", "gift"]
        )
        self.jobs["secret"] = job.id

    def _store_graph(self) -> None:
        """A catalogue that waits for photos, prices and texts."""
        photos = [self.resize_photo.call(7000 + n, [640]) for n in range(24)]
        export = self.export_orders.call("2027-01-15")
        stock = [self.sync_stock.call(name) for name in ("Lyon", "Porto")]
        after: dict[str, Call[Any]] = {f"photo{n}": photo for n, photo in enumerate(photos)}
        after |= {"orders": export, "lyon": stock[0], "porto": stock[1]}
        publish = self.publish_catalogue.using(after=after, on_blocker_failure="wait").call(
            "spring"
        )
        mail = self.send_receipt.using(after={"catalogue": publish}).call(1, "all@example.com")
        stored = self.app.enqueue_many([*photos, export, *stock, publish, mail])
        self.jobs["graph"] = stored[-2].id

    def _store_the_present(self) -> None:
        self.jobs["running"] = self.import_catalogue.using(label="spring").enqueue("Nord & Co").id
        self.import_catalogue.enqueue("Atelier Sud")
        self.jobs["open chain"] = self.export_orders.enqueue("2027-01-15").id

    def _store_lanes(self) -> None:
        """Orders to suppliers: two at a time to each, and no more than five in all."""
        app = self.app
        app.set_limit("suppliers", concurrency=5, rate=60, per=60, by="ann")
        app.set_limit("suppliers", lane="*", concurrency=2)
        app.set_limit("suppliers", lane="Nord & Co", concurrency=1, by="bob")
        for supplier, number in (("Atelier Sud", 14), ("Nord & Co", 6), ("Vega", 3), ("Öko", 1)):
            app.enqueue_many([self.order_goods.call(supplier, n) for n in range(number)])
        until(lambda: len(app.jobs(queue="suppliers", state="running")) == 5, "as many run as may")

    def _let_people_act(self) -> None:
        declined = [job.id for job in self.app.jobs(task="charge_card", state="failed", limit=3)]
        self.app.retry(declined[0], by="ann")
        self.app.cancel(declined[0], reason="paid by bank transfer", by="ann")
        self.app.runner.run(self.app.runner.store.note(self.jobs["secret"], "reveal", "bob"))
        self.app.pause("media", by="bob")
        self.app.resume("media", by="bob")
        self.app.cancel_many(label="nightly", by="deploy@ci")
        self.app.schedule("catalogue").pause(by="ann")

    def _store_what_waits(self) -> None:
        self._store_lanes()
        self.app.pause("mail", by="ann")
        guests = [self.send_receipt.call(n, f"guest{n}@example.com") for n in range(24)]
        publish = self.publish_catalogue.using(on_blocker_failure="run").call("autumn")
        group = self.app.enqueue_group(guests, then=publish)
        self.jobs["group"] = group.id
        members = [blocker.chain_id for blocker in self.app.blockers(group.id)]
        for chain in members[:15]:
            self.app.complete(chain, "receipt@shop.example")
        self.app.fail(members[15], "guest15@example.com: mailbox unavailable")
        for order in range(9):
            self.send_receipt.enqueue(order, f"guest{order}@example.com")
        for warehouse in ("Lyon", "Turin"):
            self.sync_stock.using(delay=1800).enqueue(warehouse)
            self.sync_stock.using(delay=3600, label="nightly").enqueue(warehouse)
