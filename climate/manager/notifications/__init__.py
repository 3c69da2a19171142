"""Notifications: their payloads, publication, the log, subscriptions and webhooks.

A transaction writes its notifications to the outbox, a database table. After the commit, ``relay``
numbers the notifications and publishes them to the message broker, and ``webhook_delivery``
delivers them to subscribers.
"""
