"""What PostgreSQL's catalogue says about a schema, in plain values that can be compared."""

from __future__ import annotations

from typing import Any

import psycopg

# Each with the schema's name as its one parameter. Nothing that differs between two databases of
# the same making, such as numbers of objects.
QUESTIONS = {
    "relations": """
        SELECT c.relname, c.relkind, c.relpersistence, c.reloptions, a.amname
          FROM pg_class AS c LEFT JOIN pg_am AS a ON a.oid = c.relam
         WHERE c.relnamespace = %s::regnamespace ORDER BY 1
    """,
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity, a.attgenerated, a.attstorage, l.collname, a.attstattarget,
               pg_get_expr(d.adbin, d.adrelid)
          FROM pg_attribute AS a
          JOIN pg_class AS c ON c.oid = a.attrelid
          LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
          LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE c.relnamespace = %s::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
         ORDER BY 1, 2
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype, convalidated, condeferrable,
               pg_get_constraintdef(oid)
          FROM pg_constraint WHERE connamespace = %s::regnamespace ORDER BY 1, 2
    """,
    "indexes": """
        SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisunique, i.indisprimary,
               i.indisvalid, i.indisready, i.indnkeyatts
          FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE c.relnamespace = %s::regnamespace ORDER BY 1
    """,
    "sequences": """
        SELECT c.relname, s.seqtypid::regtype::text, s.seqstart, s.seqincrement, s.seqmax,
               s.seqmin, s.seqcache, s.seqcycle
          FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid
         WHERE c.relnamespace = %s::regnamespace ORDER BY 1
    """,
    "views": """
        SELECT relname, pg_get_viewdef(oid) FROM pg_class
         WHERE relnamespace = %s::regnamespace AND relkind IN ('v', 'm') ORDER BY 1
    """,
    "triggers": """
        SELECT c.relname, pg_get_triggerdef(t.oid)
          FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
         WHERE c.relnamespace = %s::regnamespace ORDER BY 1, 2
    """,
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
         WHERE pronamespace = %s::regnamespace ORDER BY 1
    """,
}


def catalogue(url: str, schema: str = "public") -> dict[str, list[tuple[Any, ...]]]:
    """Everything a schema holds: tables, columns, constraints, indexes, sequences, views."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {
            what: connection.execute(question.encode(), [schema]).fetchall()
            for what, question in QUESTIONS.items()
        }


def relations(url: str, schema: str = "public") -> set[str]:
    """The names of all that a schema holds."""
    return {name for name, *_ in catalogue(url, schema)["relations"]}
