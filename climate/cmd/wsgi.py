"""The WSGI callable for other HTTP servers: ``gunicorn climate.cmd.wsgi:application``.

It reads the same configuration as climate-api, but no command line: the files that oslo.config
finds, or environment variables. Each worker process must import this module itself, because
database connections do not survive a fork.
"""

from climate import bootstrap
from climate.config import registry as config_registry

conf = config_registry.new()
config_registry.load(conf, "climate-api", [])
application = bootstrap.make_api(conf, bootstrap.make_checked_runtime(conf))
bootstrap.settle()
