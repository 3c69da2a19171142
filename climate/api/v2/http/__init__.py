"""What all v2 routes share: fields, validation, paging and the OpenAPI document."""
