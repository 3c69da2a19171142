"""Statements on the outbox, on webhook subscriptions and deliveries, and on calendar feeds."""
