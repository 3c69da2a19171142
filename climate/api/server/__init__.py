"""The built-in HTTP server, with health checks and the delivery of static files.

``http_server`` listens on the port, and finishes the requests in progress at shutdown.
``connections`` closes connections of slow clients. ``health`` contains the views with which load
balancers and supervisors check the process. ``static_files`` serves the files of web pages.
"""
