"""Resources: registration, queries, properties, calendar, and inventory sync with the cloud."""
