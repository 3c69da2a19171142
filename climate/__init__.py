"""climate: leases and reservations over physical hosts and virtual capacity."""
