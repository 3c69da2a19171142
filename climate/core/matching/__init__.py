"""Which resources serve a reservation: property queries, packing, free windows, preferences."""
