"""Subscribers of events: the log; later traces and metrics."""
