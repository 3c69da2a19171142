"""The HTTP API: identity, policy, validation and JSON, but no decisions about leases.

``app`` builds the Flask application. ``call`` provides a view with the request and the runtime.
``auth`` identifies the caller, ``policy`` authorizes the caller, and ``errors`` renders errors.
``v1`` is Blazar's wire format; ``v2`` is climate's own.
"""
