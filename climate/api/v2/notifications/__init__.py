"""Notifications in the v2 API: the log, the event stream and subscriptions."""
