"""Metrics and the context of log lines."""
