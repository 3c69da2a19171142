"""SQL statements about resources: their properties, capacity, allocations and occupancy.

A resource is a thing that leases can reserve, such as a host. An allocation books a resource for a
reservation. Occupancy is how much of the resources is booked over time.
"""
