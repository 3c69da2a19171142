"""Statements on notifications, webhook subscriptions and their deliveries, and calendar feeds.

A transaction that changes a lease writes a notification to the outbox, a table. Each manager has a
relay, which publishes notifications from the outbox to the message broker. A webhook subscription
sends notifications to a URL. A calendar feed shows leases in a calendar program.
"""
