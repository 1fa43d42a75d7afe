"""One word per idea: the code gives things the names of the glossary and no others.

Only names the package gives are judged, not those it uses: a driver's words are its own.
"""

import ast
import re
from collections.abc import Iterator

from tests.shape.source import Module, complain, modules

# The word we do not use, and the one we do.
INSTEAD = {
    "ack": "finish",
    "actor": "task",
    "backend": "engine, store or connection",
    "heartbeat": "renew or lease",
    "manager": "the noun of what it holds",
    "message": "job",
    "provider": "connection",
    "reap": "sweep",
    "rescue": "sweep",
    "workflow": "chain",
}

# Here the word means text for a person to read: what an error says, what progress reports.
# Anywhere else a message would be a job.
# A backend is what Django calls the class that its TASKS names, and the alias of one in a task.
ALLOWED = frozenset({"Backend", "backend", "error_message", "message", "progress_message"})

# OpenTelemetry's own, which people who use it know.
ALLOWED |= {"meter_provider", "tracer_provider"}

UNWANTED = re.compile(rf"({'|'.join(INSTEAD)})(?:s|d|ed|r|er|ers|ing)?")


def test_names_use_the_words_of_the_glossary() -> None:
    complain(
        [
            f"{module.at(line)}: {name!r} says {word!r}; our word is {INSTEAD[word]}"
            for module in modules()
            for line, name in given(module)
            if name not in ALLOWED
            for word in unwanted(name)
        ]
    )


def unwanted(name: str) -> list[str]:
    found = (UNWANTED.fullmatch(word.lower()) for word in words(name))
    return [match[1] for match in found if match]


def words(name: str) -> list[str]:
    """`claim_jobs` and `ClaimJobs` are both claim, jobs; `HTTPError` is HTTP, error."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)


def given(module: Module) -> Iterator[tuple[int, str]]:
    """Every name this module gives to something, with its line."""
    yield 1, module.parts[-1] if module.parts else "towline"
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case _:
                pass
