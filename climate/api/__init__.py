"""The HTTP API: identifies callers, checks policy, validates requests and renders JSON.

The decisions about leases are in ``climate.manager``. ``app`` builds the Flask application.
``call`` has what a view needs: the request, its caller and the runtime. ``auth`` identifies the
caller, ``policy`` authorizes the caller, and ``errors`` renders errors. ``v1`` has Blazar's wire
format; ``v2`` has climate's own.
"""
