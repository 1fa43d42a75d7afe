"""Run a program on a disk that stalls now and then, as busy and virtual disks do.

    python -m tests.faults.stalling_disk pytest -q -n 2 tests/sqlite
    python -m tests.faults.stalling_disk --one-in 100 --seconds 10 python -m tests.faults.kills

One fsync in so many sleeps first, up to so many seconds: in the program, in its children, and in
the PostgreSQL servers that they start (those that tests share never sync; `durable_server` does). A
test that fails here and not without has a deadline that waiting for the disk can eat.

Needs Linux and a C compiler, cc, for the few lines that come between: nothing in the suite depends
on this file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static unsigned number(const char *name) {
    const char *text = getenv(name);
    return text ? (unsigned) atoi(text) : 0;
}

static void stall(void) {
    static __thread unsigned long long state;
    struct timespec now, left;
    unsigned one_in = number("STALL_ONE_IN"), longest = number("STALL_MILLISECONDS"), time;
    const char *log = getenv("STALL_LOG");
    char line[64];
    int kept = errno, file;

    clock_gettime(CLOCK_MONOTONIC, &now);
    state = (state ^ now.tv_nsec ^ getpid()) * 6364136223846793005ULL + 1442695040888963407ULL;
    if (!one_in || !longest || (state >> 33) % one_in) return;
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    time = (state >> 33) % longest;
    if (log && (file = open(log, O_WRONLY | O_APPEND | O_CLOEXEC)) >= 0) {
        if (write(file, line, snprintf(line, sizeof line, "%d %u\n", getpid(), time)) < 0) {}
        close(file);
    }
    left.tv_sec = time / 1000;
    left.tv_nsec = time % 1000 * 1000000L;
    while (nanosleep(&left, &left) < 0 && errno == EINTR) {}
    errno = kept;
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    stall();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    stall();
    return real(file);
}
"""


def build(folder: Path) -> Path:
    """Compile what comes between a program and the disk."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        raise SystemExit("stalling_disk needs Linux and a C compiler (cc)")
    source, library = folder / "stall.c", folder / "stall.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.stalling_disk", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--one-in", type=int, default=500, help="so many syncs for each stall")
    parser.add_argument("--seconds", type=float, default=10.0, help="the longest stall")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="pytest …, python …, or any")
    given = parser.parse_args()
    words: list[str] = given.command
    if not words:
        parser.error("say what to run")
    own = {"pytest": [sys.executable, "-m", "pytest"], "python": [sys.executable]}
    command = [*own.get(words[0], words[:1]), *words[1:]]
    with tempfile.TemporaryDirectory(prefix="stall-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a server that root starts runs as somebody else
        log = folder / "events"
        log.touch()
        log.chmod(0o666)
        told = {
            "LD_PRELOAD": str(build(folder)),
            "STALL_LOG": str(log),
            "STALL_ONE_IN": str(given.one_in),
            "STALL_MILLISECONDS": str(round(given.seconds * 1000)),
        }
        code = subprocess.run(command, env={**os.environ, **told}).returncode
        stalls = [int(line.split()[1]) / 1000 for line in log.read_text().splitlines()]
    longest = max(stalls, default=0)
    print(f"{len(stalls)} stalls, {sum(stalls):.0f} s in all, the longest {longest:.1f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
