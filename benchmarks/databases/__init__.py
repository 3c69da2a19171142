"""Databases of the benchmarks: temporary ones, and checks of the bookings in them."""
