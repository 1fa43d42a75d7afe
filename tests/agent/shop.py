"""An application that prints wherever it can: at import, in a thread, below Python, at its end."""

import atexit
import logging
import os
import subprocess
import sys
import threading

from towline import Towline

logging.basicConfig(stream=sys.stdout, level=logging.INFO)  # as if stdout were nobody's
print("hello from the import")
sys.stdout.write("without an end")
os.write(1, b"below Python\n")
subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
atexit.register(print, "goodbye")
if sys.stdin.read(1):
    raise SystemExit("it took a byte of the wire")

app = Towline(os.environ["SHOP_URL"])


def chatter() -> None:
    while True:
        print("chatter")
        threading.Event().wait(0.01)


threading.Thread(target=chatter, daemon=True).start()


@app.task
def add(a: int, b: int = 2) -> int:
    print("in the handler")
    return a + b
