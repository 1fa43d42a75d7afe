"""OpenTelemetry: spans and metrics by its API alone; `towline/otel.py` is the door."""
