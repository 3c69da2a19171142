"""Notifications: their payloads, publication, the log, subscriptions and webhooks.

A transaction writes its notifications to the outbox, a database table. Other code then numbers
them, publishes them to the message broker, and delivers them to subscribers.
"""
