"""One adapter for each system: a program that runs in that system's own environment.

    python -P bench/systems/huey.py ROLE '{"place": "/tmp/huey.db", "count": 1000}'

Its roles are what `bench.measure` puts together: `enqueue` and `bulk` store jobs and time it,
`fill` stores them untimed, `worker` works until it is told to stop and keeps a journal of what ran,
`pulse` stores one job at a time and says when its commit had returned, `left` counts what is open.
A role prints one line of JSON at its end. `-P`, or `import huey` would find the adapter itself.
"""
