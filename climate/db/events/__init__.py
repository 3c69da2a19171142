"""Statements on events: the queue of due work, its order and its claims."""
