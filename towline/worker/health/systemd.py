"""Notices for systemd: ready, stopping, and that the pump still comes round."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

from . import Health

SOCKET, WATCHDOG, WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class Notices:
    """Sends to the socket of a service manager; one that is gone is not waited for."""

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.interval = None if watchdog is None else watchdog / 2  # seconds between two signs
        self._next_sign = 0.0
        self.said_ready = self._said_stopping = False
        self._status = ""

    @classmethod
    def asked_for(cls, environment: MutableMapping[str, str]) -> Notices | None:
        """What the environment says, which children and handlers then do not see; None where no
        service manager listens."""
        address = environment.pop(SOCKET, "")
        microseconds = environment.pop(WATCHDOG, "")
        process = environment.pop(WATCHDOG_PID, "")
        if not address.startswith(("/", "@")):
            return None
        mine = not process or process == str(os.getpid())
        signs = mine and microseconds.isdigit() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1_000_000 if signs else None)

    def tell(self, health: Health) -> None:
        """How things stand, whenever the pump has come round: what is new of it is sent."""
        ready = health.ready()
        if ready.well and not self.said_ready:
            self.said_ready = True
            self._send("READY=1")
        if ready.why == "stopping" and not self._said_stopping:
            self._said_stopping = True
            self._send("STOPPING=1")
        status = ready.why or "ready"
        if status.split(" for ")[0] != self._status:
            self._status = status.split(" for ")[0]
            self._send(f"STATUS={self._status}")
        due = self.interval is not None and time.monotonic() >= self._next_sign
        if self.interval is not None and due and health.live().well:
            self._next_sign = time.monotonic() + self.interval
            self._send("WATCHDOG=1")

    def _send(self, notice: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(notice.encode(), self._address)
        except OSError:  # nobody listens, or does not keep up
            pass
