"""Notifications and filters on them, and the rules of webhook delivery and calendar feeds."""
