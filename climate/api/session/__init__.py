"""Sessions of browsers: sign-in at ``/console/session``, the cookie, and protection against CSRF.

``views`` has the routes. ``middleware`` reads the cookie before the token is checked. ``cookie``
encrypts it, with ``keys``. ``cross_site`` decides which requests come from another site.

``directory`` is the interface of the place where users come from. ``keystone_directory`` gets them
from Keystone, with the client in ``keystone``; ``attempts`` limits failed sign-ins. Without
authentication, each user states its own name.
"""
