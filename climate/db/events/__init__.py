"""Statements on events.

``queue`` claims, requeues and finishes events. ``waiting`` reads the due events. ``ordering``
defines which event must wait for which other event.
"""
