"""Sessions of browsers: sign-in at ``/console/session``, the cookie, and protection against CSRF.

``views`` has the routes. ``middleware`` reads the cookie of each request before the token is
checked. ``cookie`` encrypts and decrypts the cookie with the keys in ``keys``. ``cross_site``
rejects requests that come from another web site. ``directory`` is the interface through which users
sign in. ``keystone_directory`` implements it with Keystone (client: ``keystone``). ``attempts``
limits failed sign-ins. Without authentication, users choose their user name and project freely.
"""
