"""The built-in HTTP server, with health checks and the delivery of static files.

``http_server`` listens and drains requests, ``connections`` bounds slow clients, ``health`` has the
views for supervisors, and ``static_files`` serves the files of web pages.
"""
