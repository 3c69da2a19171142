"""Statements on events, the steps in the life of a lease that managers run.

``queue`` claims, requeues and finishes events. ``waiting`` reads the due events. ``ordering``
defines which event must wait for which other event.
"""
