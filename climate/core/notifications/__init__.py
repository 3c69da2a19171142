"""Notifications, and the rules for webhooks and calendar feeds."""
