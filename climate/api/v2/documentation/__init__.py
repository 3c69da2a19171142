"""The interactive page of v2: Swagger UI with climate's own start script and request examples."""
