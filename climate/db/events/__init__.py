"""Statements on events.

``queue`` claims, requeues and finishes events, ``waiting`` reads those that are due, ``ordering``
says which event must wait for which.
"""
