"""Who is told what happens: the log, traces and metrics."""
