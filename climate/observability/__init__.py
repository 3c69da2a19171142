"""Metrics, and the ids that log lines contain (request, user, project, event, lease)."""
