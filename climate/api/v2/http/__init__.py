"""Fields, validation, paging and the OpenAPI document, for all v2 routes."""
