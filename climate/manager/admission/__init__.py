"""Admission: choose and lock resources for a lease, or explain why that is impossible.

``requirements`` computes what a reservation needs. ``candidates`` finds the resources that could
serve the reservation. ``admission`` chooses some of them and locks these. ``at_once`` books or
refuses a new lease in the common case, without a transaction. ``reallocation`` books the resources
of a changed lease. ``refusal`` explains a rejection and offers alternatives. ``limits`` enforces
the limits of projects and users, for example "at most 10 hosts". ``availability`` computes free
capacity over time. ``gates`` defines the hooks with which optional features can check or reject a
request.
"""
