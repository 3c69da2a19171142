"""Statements on notifications, webhook subscriptions and their deliveries, and calendar feeds.

A transaction that changes a lease writes a notification to the outbox, a table. A relay, of which
each manager has one, publishes it to the message broker. A webhook subscription sends notifications
to a URL. A calendar feed shows leases in a calendar program.
"""
