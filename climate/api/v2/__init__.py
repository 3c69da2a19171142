"""The v2 API. ``routes`` is the table of all routes; each noun has a folder with views and schemas.

The schemas validate a request, render the answer and document both in the OpenAPI document.
"""
