"""Measurements, each a script of its own: `python -m bench.NAME`, with `--quick` for a short run.

Figures of two machines, or of two runs on a busy one, have little to do with each other. So every
script measures what it compares side by side, in rounds, and prints ratios; it shows CPU time next
to wall time, and counts (pages, steps of SQLite's virtual machine) where a count says as much.
"""
