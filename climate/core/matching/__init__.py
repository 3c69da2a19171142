"""Which resources a reservation gets: conditions on properties, free windows, and assignment."""
