"""The programs that serve: climate-standalone, climate-api and climate-manager."""

import argparse
import logging

from oslo_config.cfg import ConfigOpts

from climate.api.server import http_server
from climate.cmd import bootstrap, demo_cloud, launch
from climate.cmd.database import check_exists, explains_errors
from climate.db.engine import schema

LOG = logging.getLogger(__name__)


@explains_errors
def standalone(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    """Run the whole service in this process. SIGTERM and SIGINT end it."""
    http_server.check_address(conf)
    demo_cloud.configure_cloud(conf)
    with bootstrap.open_runtime(conf) as runtime:
        manager = bootstrap.make_manager(conf, runtime)
        with http_server.bound(conf, bootstrap.make_api(conf, runtime, manager)) as server:
            is_new = schema.current(runtime.database) is None
            schema.upgrade(runtime.database)
            demo_cloud.create_journal(conf, runtime.plugins)
            if is_new and not arguments.empty and conf["physical:host"].cloud == "simulated":
                demo_cloud.register_first_hosts(conf, runtime)
            manager.start()
            try:
                http_server.serve(conf, server, launch.prepare_to_run(), runtime.latest.close)
            finally:
                manager.stop()


@explains_errors
def api(conf: ConfigOpts, _: argparse.Namespace) -> None:
    """Serve the API. SIGTERM and SIGINT end it."""
    http_server.check_address(conf)
    check_exists(conf)
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        with http_server.bound(conf, bootstrap.make_api(conf, runtime)) as server:
            http_server.serve(conf, server, launch.prepare_to_run(), runtime.latest.close)


@explains_errors
def manager(conf: ConfigOpts, _: argparse.Namespace) -> None:
    """Run due events, and publish notifications. SIGTERM and SIGINT end it."""
    check_exists(conf)
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        manager = bootstrap.make_manager(conf, runtime)
        stopping = launch.prepare_to_run()
        manager.start()
        LOG.info("climate-manager is at work")
        stopping.wait()
        manager.stop()
