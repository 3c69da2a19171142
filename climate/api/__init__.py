"""The HTTP API: identity, policy, validation and JSON, but no decisions about leases.

``app`` builds the Flask application. ``call`` is a request and what its view needs. ``auth``
identifies the caller, ``policy`` authorizes the caller, and ``errors`` renders errors as responses.
``v1`` is Blazar's wire format; ``v2`` is climate's own.
"""
