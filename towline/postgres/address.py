"""Where a database is: a URL for libpq, with what every connection of ours has besides.

No secret gets out of here: what libpq says of a URL that it cannot read repeats parts of it, so it
is passed on only where there is no password to repeat.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..errors import InvalidSetting

ALIVE = {
    "connect_timeout": "10", "keepalives_idle": "15", "keepalives_interval": "5",
    "keepalives_count": "3", "tcp_user_timeout": "20000",
}  # fmt: skip
OURS = {"client_encoding": "UTF8"}  # whatever the role or the application's environment says
LIKE = "a URL is postgresql://user@host/database"
ENCODE = "in a password % is written %25, @ %40, / %2F, : %3A, ? %3F, # %23"


class Address:
    """What a URL says: for opening connections, and for naming the database in messages."""

    def __init__(self, url: str) -> None:
        given = _read(url)
        self.conninfo = make_conninfo(**{"application_name": "towline", **ALIVE, **given, **OURS})
        self.database: str | None = given.get("dbname")  # None: libpq decides
        self.place = f"database {given.get('dbname') or given.get('user') or ''}".strip()


def _read(url: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
    except psycopg.Error as error:
        said = "libpq cannot read this URL" if _has_secret(url) else str(error).strip()
        raise InvalidSetting(f"{said}; {LIKE}; {ENCODE}") from None
    # A password that was not encoded ends at its first special character; the rest of it would be
    # shown as a name.
    if any("@" in str(given.get(part) or "") for part in ("host", "dbname", "port")):
        raise InvalidSetting(f"this URL has an @ in its host or database; {LIKE}; {ENCODE}")
    return given


def _has_secret(url: str) -> bool:
    _, _, rest = url.partition("://")
    return ":" in rest.rpartition("@")[0] or "pass" in url.lower()
