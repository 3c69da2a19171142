"""Sessions of browsers: sign-in at ``/console/session``, the cookie, and protection against CSRF.

``middleware`` reads the cookie before the token is checked, ``cookie`` encrypts it with ``keys``,
``cross_site`` decides which requests come from another site, and ``views`` has the routes.
"""
