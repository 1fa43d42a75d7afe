"""Install the wheel with each extra, alone, and use it: `python -m tests.extras`.

Each extra has an environment of its own that nothing else is installed in: what a module imports
and its extra does not name is missing there, as it would be at a user's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]
DEVELOPMENT = {"dev", "docs", "peers"}

MAKES = "import towline; app = towline.Towline('sqlite:///app.db')"
# What a user of the extra would write first. "" is the wheel without any.
USES = {
    "": f"""{MAKES}
@app.task
def add(a: int, b: int) -> int: return a + b
app.migrate()
job = add.enqueue(1, 2)
from towline.testing import drain
drain(app)
assert job.result() == 3""",
    "postgres": "import towline; towline.Towline('postgresql://localhost/none')",
    "dashboard": f"{MAKES}; from towline import dashboard; dashboard.asgi(app)",
    "django": """import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=['towline.integrations.django'],
    DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'app.db'}},
)
django.setup()
from django.core.management import call_command
call_command('migrate', verbosity=0)""",
    "otel": f"{MAKES}; from towline.otel import instrument; instrument(app)",
    "prometheus": f"{MAKES}; from towline.prometheus import Metrics; Metrics(app).page()",
    "sentry": f"{MAKES}; from towline.integrations.sentry import report; report(app)",
    "mcp": f"{MAKES}; from towline import agent; agent.asgi(app)",
    "redis": f"{MAKES[:-1]}, wake='redis://localhost:1')",
    "nats": f"{MAKES[:-1]}, wake='nats://localhost:1')",
    "top": "from towline.cli import top",
    "reload": "import watchfiles; from towline.cli import dev",
    "all": f"{MAKES}; from towline import agent, dashboard, otel, prometheus; dashboard.asgi(app)",
}


def extras() -> set[str]:
    """Those that a user installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"]) - DEVELOPMENT


def run(extra: str, wheel: Path, folder: Path) -> bool:
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    installed = subprocess.run([*install, wanted], capture_output=True, text=True)
    if installed.returncode:
        print(installed.stderr)
        return False
    for command in (["-c", USES[extra]], ["-m", "towline", "--help"], ["-m", "pip", "check"]):
        done = subprocess.run(
            [python, *command], cwd=folder, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            print(done.stdout + done.stderr)
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("extra", nargs="*", help="only these")
    chosen = parser.parse_args(arguments).extra or sorted({"", *extras()})
    if unknown := {"", *extras()} ^ set(USES):
        sys.exit(f"USES and pyproject.toml name different extras: {', '.join(sorted(unknown))}")
    failed = False
    with tempfile.TemporaryDirectory() as place:
        (built,) = WheelBuilder(str(ROOT)).build(directory=place)
        for extra in chosen:
            passed = run(extra, Path(built), Path(place) / f"with {extra or 'nothing'}")
            print(f"towline[{extra}]: {'works' if passed else 'FAILED'}", flush=True)
            failed |= not passed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
