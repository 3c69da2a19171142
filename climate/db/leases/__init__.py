"""Statements on leases, their reservations, the history of leases, and idempotency keys.

A lease is *held* while climate waits for another service to approve it or for the cloud to be
prepared. It then has the status CREATING: its resources are booked, but no API shows it. climate
later confirms the held lease, or releases it (frees its resources and deletes it).
"""
