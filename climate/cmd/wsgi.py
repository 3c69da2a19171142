"""The WSGI callable for other HTTP servers: ``gunicorn climate.cmd.wsgi:application``.

It has no command line. Its options come from the configuration files that climate-api finds by
default, and from environment variables. Each worker process must import this module itself (no
``--preload``), because database connections do not survive a fork.
"""

from climate.cmd import bootstrap, launch
from climate.config import registry as config_registry

conf = config_registry.new()
config_registry.load(conf, "climate-api", [])
application = bootstrap.make_api(conf, bootstrap.make_checked_runtime(conf))
launch.settle()
