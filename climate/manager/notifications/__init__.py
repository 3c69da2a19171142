"""Notifications: what they say, their log, and their delivery to the broker and to webhooks."""
