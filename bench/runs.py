"""How one run of each scenario goes: what is prepared, what is started, what is read off."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from bench import machine
from bench.catalog import System
from bench.measure import PATIENCE, Failed, Watched, drain, hands, role
from bench.places import File, Place, journal
from bench.record import Record
from bench.seed import Numbers, seed, seed_postgres

Params = Mapping[str, Any]
QUEUE = "queue0"  # where bench.seed puts its jobs
CHUNK = 5_000  # jobs at a time, while an old snapshot is held


# ---- storing


def enqueue(system: System, place: Place, record: Record, params: Params) -> None:
    store("enqueue", system, place, record, params)


def bulk(system: System, place: Place, record: Record, params: Params) -> None:
    store("bulk", system, place, record, params)


def store(name: str, system: System, place: Place, record: Record, params: Params) -> None:
    """The role prepares everything, waits to be looked at, and then takes its own time."""
    with hands(system, 1, {**params, "place": place.address}, name) as (hand,):
        log, server = place.log(), place.server_cpu()
        hand.go()
        said = hand.said(PATIENCE)
        if log is not None:
            record.written = (place.log() or 0) - log
        else:
            record.written = said.get("written")
        if server is not None:
            record.server_cpu = (place.server_cpu() or 0.0) - server
    record.count, record.seconds, record.cpu = said["count"], said["seconds"], said["cpu"]


# ---- working


def fill_and_drain(system: System, place: Place, record: Record, params: Params) -> None:
    role(system, "fill", {**params, "place": place.address})
    drain(system, place, record, params)


def grow(system: System, place: Place, record: Record, params: Params) -> None:
    """What finished jobs leave behind in the database."""
    role(system, "fill", {**params, "count": 0, "place": place.address})
    before = place.size()
    fill_and_drain(system, place, record, params)
    record.size = place.size() - before


def drain_while_looked_at(system: System, place: Place, record: Record, params: Params) -> None:
    """Beside a process that asks what a dashboard asks, ten times a second, or alone."""
    told = {**params, "place": place.address}
    role(system, "fill", told)
    lookers = 1 if params["looked"] else 0
    with hands(system, lookers, told, "look") as looking:
        for hand in looking:
            hand.go()
        drain(system, place, record, params)


def drain_beside_rows(system: System, place: Place, record: Record, params: Params) -> None:
    """With so many other rows in the database: finished, scheduled, blocked, parked, pending.

    The pending ones come behind the measured ones; what cannot be claimed would come before them.
    """
    number, kind = params["rows"], params["kind"]
    numbers = Numbers.each(number) if kind == "all" else Numbers(**{kind: number})
    if isinstance(place, File):
        seed(place.path, numbers)
    else:
        seed_postgres(place.address, numbers)
        with psycopg.connect(place.address, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")
    told = {**params, "kind": "plain", "queue": QUEUE}
    role(system, "fill", {**told, "place": place.address})
    drain(system, place, record, told, left=False)


def drain_under_a_snapshot(system: System, place: Place, record: Record, params: Params) -> None:
    """Job after job for some seconds, while a transaction keeps what was deleted from being
    cleared away, or without one; how fast at first, how fast at last."""
    told = {**params, "place": place.address}
    role(system, "fill", {**told, "count": 0})
    rates: list[float] = []
    with journal() as path, psycopg.connect(place.address) as reader:
        watched = Watched(path)
        with hands(system, 1, {**told, "journal": str(path)}) as workers:
            if params["pinned"]:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute("SELECT count(*) FROM towline_live")
            for hand in workers:
                hand.go()
            end, done = time.monotonic() + params["seconds"], 0
            while time.monotonic() < end or len(rates) < 4:
                role(system, "fill", {**told, "first": done, "count": CHUNK})
                done += CHUNK
                if not watched.wait(done, workers, PATIENCE):
                    raise Failed(f"it stopped after {watched.number()} of {done} jobs")
                times = [entry.at for entry in watched.entries()[-CHUNK:]]
                rates.append(CHUNK / ((max(times) - min(times)) / 1e9))
            time.sleep(0.3)
        entries = watched.entries()
        reader.rollback()
    record.count, record.seconds = done, sum(CHUNK / rate for rate in rates)
    record.ran = len({entry.number for entry in entries})
    record.twice, record.lost = len(entries) - record.ran, done - record.ran
    record.left = role(system, "left", told)["left"]
    quarter = max(len(rates) // 4, 1)
    first, last = statistics.median(rates[:quarter]), statistics.median(rates[-quarter:])
    record.figures = {"first": first, "last": last, "kept": last / first}


# ---- waiting


def latency(system: System, place: Place, record: Record, params: Params) -> None:
    """From the moment an enqueue has returned to the start of its handler, in another process that
    was idle; below zero where the handler was quicker than the answer. Then what that worker, and
    the server for it, use while nothing happens, in percent of a core."""
    with journal() as path:
        told = {**params, "place": place.address, "journal": str(path)}
        role(system, "fill", {**told, "count": 0})
        watched = Watched(path)
        with hands(system, 1, told) as (hand,):
            hand.go()
            role(system, "pulse", {**told, "count": 1})  # it is awake, connected, and has run one
            begun = time.monotonic_ns()
            said = role(system, "pulse", told, patience=300)
            time.sleep(1.0)
            server = [pid] if (pid := place.server_pid()) else []
            before, before_server = machine.exact_cpu([hand.pid]), machine.exact_cpu(server)
            time.sleep(params["silence"])
            used = machine.grown(before, machine.exact_cpu([hand.pid]))
            used_server = machine.grown(before_server, machine.exact_cpu(server))
            hand.check()
            record.memory = machine.peak(hand.pid)
        started = {entry.number: entry.at for entry in watched.entries() if entry.at > begun}
        record.twice = watched.number() - len(started) - 1
    returned = dict(said["returned"])
    waits = sorted((started[n] - at) / 1e6 for n, at in returned.items() if n in started)
    record.ran, record.lost = len(waits), len(returned) - len(waits)
    if not waits:
        raise Failed("no job ran")
    record.figures = {
        "p50_ms": statistics.median(waits),
        "p99_ms": waits[min(len(waits) - 1, round(len(waits) * 0.99))],
        "jobs": len(waits),
        "idle_percent": 100 * used / params["silence"],
    }
    if server:
        record.figures["server_percent"] = 100 * used_server / params["silence"]


# ---- starting


def imported(system: System, place: Place, record: Record, params: Params) -> None:
    """CPU time of `from towline import Towline` over a bare interpreter, in turns.

    What was compiled is kept, as it is wherever a package is installed: compiling us takes as long
    as importing us.
    """
    bare, ours = [], []
    _cpu("from towline import Towline", place.folder)
    for _ in range(params["times"]):
        bare.append(_cpu("pass", place.folder))
        ours.append(_cpu("from towline import Towline", place.folder))
    record.figures = {
        "best_ms": 1000 * (min(ours) - min(bare)),
        "median_ms": 1000 * (statistics.median(ours) - statistics.median(bare)),
        "bare_ms": 1000 * statistics.median(bare),
    }


def _cpu(text: str, folder: Path) -> float:
    """Seconds of CPU that an interpreter takes to run a text."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": os.fspath(folder / "compiled")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", text], check=True, cwd=folder, env={**os.environ, **kept})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
