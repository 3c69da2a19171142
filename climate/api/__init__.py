"""The HTTP API: identifies callers, checks policy, validates requests and renders JSON.

A view is the function that answers a route. The decisions about leases are in ``climate.manager``.
``app`` builds the Flask application. ``call`` defines what a view receives: the request, its caller
and the runtime. ``auth`` identifies the caller, ``policy`` authorizes the caller, and ``errors``
renders errors. ``v1`` uses Blazar's wire format; ``v2`` uses climate's own.
"""
