from __future__ import annotations
import pytest, faulthandler, sys, time
from concurrent.futures import ThreadPoolExecutor
from tests.worker.test_waiting import wait  # noqa
from tests.worker.gate import Gate, LIMIT
@pytest.mark.parametrize("n", range(20))
def test_again(app, wait, n):
    gate = Gate()
    @app.task
    def work(number: int) -> int:
        gate.enter()
        return number

    with app.worker() as worker, ThreadPoolExecutor(6) as pool:
        jobs = [work.enqueue(number) for number in range(3)]
        waiting = [pool.submit(wait, job) for job in jobs * 2]
        try:
            gate.wait_inside(3)
        except AssertionError:
            p = worker.pump
            now = time.monotonic()
            out = open(f"/tmp/wt-probe/dump{n}", "w")
            print({k: (round(v-now,3) if k.endswith("_at") else v) for k,v in vars(p).items() if k not in ("_app",)}, p._pause(), app.workers(), [j.refresh().state for j in jobs], [j.worker for j in jobs], [app.attempts(j.id) for j in jobs], file=out, flush=True)
            print(vars(p._upkeep), file=out, flush=True)
            for s in worker._slots.values(): print(vars(s), s._line.qsize(), file=out, flush=True)
            faulthandler.dump_traceback(out)
            raise
        finally:
            gate.open()
