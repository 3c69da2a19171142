"""Properties of resources: queries on them as SQL, their names and values, and pushed stats."""
