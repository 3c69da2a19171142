"""The v2 API. ``routes`` has the table of all routes.

Each kind of object, such as leases, has a folder of views and schemas. A schema validates requests
or renders responses, and describes them in the OpenAPI document.
"""
