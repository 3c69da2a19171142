"""Statements on the outbox, on subscriptions and on webhook deliveries."""
