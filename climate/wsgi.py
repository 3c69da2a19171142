"""The WSGI callable, for a server of your choice: ``gunicorn climate.wsgi:application``.

It is configured as climate-api is, by the files that oslo.config finds or by environment
variables. Each worker process must make its own: database connections do not survive a fork.
"""

from climate import config, service

conf = config.new()
config.load(conf, "climate-api", [])
application = service.make_api(conf, service.make_checked_runtime(conf))
service.settle()
