"""The HTTP API: identity, policy, validation and JSON, but no decisions about leases.

``app`` builds the Flask application. ``call`` is one request: its caller, policy and answer.
``auth`` finds out who calls, ``policy`` what the caller may do, ``errors`` how a ClimateError
becomes an answer. ``v1`` is Blazar's wire format; ``v2`` is climate's own.
"""
