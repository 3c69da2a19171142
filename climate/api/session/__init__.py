"""Sessions of browsers: sign-in at ``/console/session``, the cookie, and protection against CSRF.

``views`` contains the routes. ``middleware`` reads the cookie of each request before the token is
checked. ``cookie`` encrypts and decrypts the cookie with the keys that ``keys`` reads.
``cross_site`` rejects requests that come from another web site. ``directory`` defines the interface
through which users sign in. ``keystone_directory`` implements the interface with Keystone, which it
calls through ``keystone``. ``attempts`` limits failed sign-ins. Without authentication, users
choose their user name and project freely.
"""
