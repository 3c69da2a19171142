"""The WSGI callable, for a server of your choice: ``gunicorn climate.cmd.wsgi:application``.

It is configured as climate-api is, by the files that oslo.config finds or by environment
variables. Each worker process must make its own: database connections do not survive a fork.
"""

from climate import bootstrap
from climate.config import registry as config_registry

conf = config_registry.new()
config_registry.load(conf, "climate-api", [])
application = bootstrap.make_api(conf, bootstrap.make_checked_runtime(conf))
bootstrap.settle()
