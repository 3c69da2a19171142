"""Admission: which resources a lease gets, and why it is refused otherwise."""
