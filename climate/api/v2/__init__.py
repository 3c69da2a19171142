"""The v2 API. ``routes`` contains the table of all routes.

Each kind of object, such as leases, has a folder of views and schemas. A view is the function that
answers a route. A schema validates requests or renders responses, and describes them in the OpenAPI
document.
"""
