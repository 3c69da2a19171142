"""Statements on events, the steps in the life of a lease that managers run.

For example, one event starts the lease and another ends it. Managers are the processes of climate
that run events. The module ``queue`` lets a manager claim an event (reserve it for itself for a
limited time) and store its outcome. ``waiting`` reads the due events. ``ordering`` defines which
event must wait for which other event. ``overdue`` finds events that are late.
"""
