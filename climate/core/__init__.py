"""Pure rules of climate: no input or output, no clock, only the standard library.

- ``lease``: the data model of leases, and their statuses.
- ``matching``: which resources a reservation gets.
- ``provisioning``: when hosts are switched on and off.
- ``notifications``: rules of webhooks and calendar feeds.
- ``limits``: limits of projects and users.
- ``errors``: all errors that clients can get.
- ``settings``: the operator's settings.
- ``window``: a span of time, such as that of a lease.
"""
