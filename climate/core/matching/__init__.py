"""The choice of resources for a reservation: property queries, packing, free windows, filters."""
