"""Notifications: their payloads, publication, the log, subscriptions and webhooks."""
