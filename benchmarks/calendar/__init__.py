"""A calendar of hosts and bookings, and the benchmarks of its reads and its page."""
