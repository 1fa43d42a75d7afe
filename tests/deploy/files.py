"""The files of `deploy/`: read, and the commands that they start."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.kit import ROOT

DEPLOY = ROOT / "deploy"
UNIT, DOCKERFILE = DEPLOY / "towline.service", DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = (DEPLOY / "kubernetes.yaml", DEPLOY / "kubernetes-sqlite.yaml")

_INSTRUCTION = re.compile(r"^([A-Z]+) (.*)$", re.MULTILINE)


class Start(NamedTuple):
    """A command of ours in a file, and what kills it how many seconds after the signal."""

    file: str
    words: tuple[str, ...]
    killed_after: int | None = None

    @property
    def grace(self) -> int:
        return int(self.words[self.words.index("--grace") + 1])


class Unit(configparser.ConfigParser):
    """Options keep their case."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> configparser.SectionProxy:
    """The [Service] of the systemd unit."""
    parser = Unit(interpolation=None, strict=True)
    parser.read_string(
        re.sub(r"^EnvironmentFile=.*$", "", UNIT.read_text(), flags=re.MULTILINE), str(UNIT)
    )
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, in order; none of them goes on in a second line."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and line[0] != "#"]
    found = [_INSTRUCTION.fullmatch(line) for line in lines]
    assert all(found), "each line is an instruction"
    return [(match[1], match[2]) for match in found if match]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def manifests(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def pods(path: Path) -> Iterator[dict[str, Any]]:
    for manifest in manifests(path):
        yield manifest["spec"]["template"]["spec"]


def seconds(text: str) -> int:
    assert text.endswith("s"), text
    return int(text.removesuffix("s"))


def starts() -> Iterator[Start]:
    """Every command of ours, without the path of the program."""
    service = unit()
    _, *words = shlex.split(service["ExecStart"])
    yield Start(UNIT.name, tuple(words), int(service["TimeoutStopSec"]))
    for name, text in instructions():
        if name in ("CMD", "HEALTHCHECK"):
            text = text.rpartition("CMD ")[2]
            yield Start(DOCKERFILE.name, _ours(json.loads(text)))
    for service_name, described in compose()["services"].items():
        if service_name == "database":
            continue
        after = described.get("stop_grace_period")
        command = _ours(described["command"])
        yield Start(COMPOSE.name, command, None if after is None else seconds(after))
        if "healthcheck" in described:
            yield Start(COMPOSE.name, _ours(described["healthcheck"]["test"][1:]))
    for path in KUBERNETES:
        for pod in pods(path):
            for container in pod["containers"]:
                after = pod.get("terminationGracePeriodSeconds")
                yield Start(path.name, _ours(container["command"]), after)


def _ours(command: list[str]) -> tuple[str, ...]:
    program, *words = command
    assert program == "towline"
    return tuple(words)
