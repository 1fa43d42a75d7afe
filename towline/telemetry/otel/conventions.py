"""The words of OpenTelemetry's messaging conventions, and ours beside them. Each stands here once.

The conventions are still being developed: a name that they change is a line in the changelog.
"""

from __future__ import annotations

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
SCOPE = "towline"

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
ID = "messaging.message.id"
CONVERSATION = "messaging.message.conversation_id"
BATCH_COUNT = "messaging.batch.message_count"
ERROR = "error.type"

TASK = "towline.task"
CREATED = "towline.created"
ATTEMPT = "towline.attempt"
POSITION = "towline.position"
WORKER = "towline.worker"
WAITED = "towline.waited"
BLOCKERS = "towline.blockers"
OUTCOME = "towline.outcome"
ACCEPTED = "towline.accepted"
STATE = "towline.state"

BAD = frozenset({"failed", "timeout", "lost"})  # outcomes that are errors
MOST_LINKS = 32  # to blockers
CUT = 100  # positions of a chain in one trace
