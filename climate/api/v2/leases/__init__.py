"""Leases in the v2 API: views, schemas, ETags and the parsing of reservations."""
