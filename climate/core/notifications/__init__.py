"""A notification, and the rules of webhook delivery."""
