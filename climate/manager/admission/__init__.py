"""Admission: choose and lock resources for a lease, or explain why that is impossible.

``requirements`` computes what a reservation needs. ``candidates`` finds resources that could serve
it. ``admission`` chooses and locks them. ``reallocation`` does so for a changed lease. ``refusal``
explains a rejection and offers alternatives. ``limits`` enforces the limits of projects and users.
``availability`` computes free capacity over time. ``gates`` are the hooks of optional features.
"""
