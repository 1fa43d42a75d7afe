"""The benchmark suite: `python -m bench` measures Towline, its peers and the bare database.

    python -m bench                                   # the short set, both engines
    python -m bench --engine sqlite --scenario drain --system towline --system huey
    python -m bench --full --out bench/.records/full.jsonl
    python -m bench.report bench/.records/full.jsonl  # tables; --docs writes the page
    python -m bench.revisions HEAD~1                  # this tree beside another revision of itself

Figures of two machines, or of two runs on a busy one, have little to do with each other. So what is
compared is measured side by side, in rounds whose order rotates; ratios are taken inside a round;
and beside every figure stand the noise of the machine, CPU time, and bytes written.
"""
