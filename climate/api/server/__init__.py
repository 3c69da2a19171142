"""The built-in HTTP server, with health checks and the delivery of static files.

``http_server`` listens, and finishes requests at shutdown. ``connections`` closes connections of
slow clients. ``health`` has the views for supervisors. ``static_files`` serves the files of web
pages.
"""
