"""Admission: choose and lock resources for a lease, or explain why that is impossible.

``requirements`` says what a reservation needs, ``candidates`` which resources could serve it,
``admission`` books them, ``reallocation`` replaces some, ``refusal`` explains a rejection and looks
for alternatives, ``limits`` enforces quotas, ``availability`` answers what is free when.
"""
