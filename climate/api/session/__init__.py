"""Sessions of browsers: sign-in at ``/console/session``, the cookie, and protection against CSRF.

``views`` has the routes. ``middleware`` reads the cookie before the token is checked, ``cookie``
encrypts it with ``keys``, and ``cross_site`` decides which requests come from another site.
``directory`` is where users come from: Keystone (``keystone_directory``, with ``keystone`` as its
client, and ``attempts`` as its limit), or nowhere, if nobody is checked.
"""
