"""reference/spans.md: the spans and their attributes. Which there are, a small shop tells; the
sentences stand here, and one that is missing, or says something of nothing, is refused."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.reference import shown
from tests.docs.reference.told import ATTRIBUTES, Told, told
from towline.model import Outcome
from towline.telemetry.otel import conventions as words

HEAD = f"""# Spans

`instrument(app)` makes them ([OpenTelemetry](../guides/see/opentelemetry.md)). They follow the
messaging conventions of `{words.SCHEMA}`, whose status is
still Development, with one deviation: those would put the queue into the name. Arguments, outputs,
keys, labels, error texts and tracebacks are in none.
"""
SPANS = {
    "enqueue {task}": "jobs of one task were stored; the time is the operation's",
    "enqueue {queue}": "jobs of several tasks in one queue",
    "enqueue": "jobs in several queues",
    "run {task}": "an attempt; the time is the handler's. It ends after the commit that records "
    "the attempt. Of a lost one: from its claim to when it was taken back, made by the worker "
    "that did so",
}
SENTENCES = {
    words.SYSTEM: "`towline`",
    words.OPERATION: "`enqueue`, `run`; of metrics also `claim` and every operation of the store",
    words.OPERATION_TYPE: "`send`, `process`",
    words.DESTINATION: "the queue, if it is one",
    words.ID: "the job, of one",
    words.CONVERSATION: "its chain",
    words.BATCH_COUNT: "how many jobs one call stored, unless it is one",
    words.ERROR: "the class of what was raised, with its module, or the outcome; the status is "
    f"ERROR. Of an enqueue that raised, and of {shown.words(sorted(words.BAD))}",
    words.TASK: "the task, if it is one",
    words.CREATED: "false: there was a chain with its key, to which the span links",
    words.ATTEMPT: "the number of the attempt",
    words.POSITION: "the place of the job in its chain",
    words.WORKER: "who ran it",
    words.WAITED: "seconds since it could have run",
    words.BLOCKERS: f"how many chains it waited for; links lead to the first {words.MOST_LINKS}",
    words.OUTCOME: shown.words(Outcome),
    words.ACCEPTED: "false: refused, since the job was taken over or ended from outside; absent "
    "where your own transaction decides",
    words.STATE: "of metrics: a state of jobs; of slots `busy`, `free`",
}
FOOT = f"""## Links

An attempt begins a trace with a link to what created its job, or is a child of it: `relation=` of
[instrument](settings.md#instrument). A continuation is a child of the attempt that continued; at
every {words.CUT}th position of a chain a new trace begins, with a link. Jobs of ticks were created
by nobody.
"""


def page() -> str:
    return "\n".join([HEAD, *_parts()])


def _parts() -> Iterator[str]:
    spans, instruments = told()
    shown.check("spans", SPANS, [span.name for span in spans])
    shown.check("spans", SENTENCES, ATTRIBUTES)
    met = {name for each in (*spans, *instruments) for name in (*each.always, *each.other)}
    assert met == set(ATTRIBUTES), f"nothing has {set(ATTRIBUTES) - met}"
    kinds = {span.name: span.kind for span in spans}
    yield "| span | kind | |\n|---|---|---|"
    for name, sentence in SPANS.items():
        yield f"| `{name}` | {kinds[name]} | {sentence} |"
    yield "\n## Attributes\n"
    yield "| attribute | on | |\n|---|---|---|"
    for name, sentence in SENTENCES.items():
        yield f"| `{name}` | {', '.join(_places(name, spans))} | {sentence} |"
    yield f"\n{FOOT}"


def _places(name: str, spans: list[Told]) -> Iterator[str]:
    """The operations whose spans have it."""
    for operation in ("enqueue", "run"):
        those = [span for span in spans if span.name.split()[0] == operation]
        if all(name in span.always for span in those):
            yield f"`{operation}`"
        elif any(name in (*span.always, *span.other) for span in those):
            yield f"`{operation}` at times"
