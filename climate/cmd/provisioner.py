"""The program climate-provisioner."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keystoneauth1.noauth import NoAuth
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.cmd import launch
from climate.config.registry import SERVICE_USER, Misconfigured, http_url
from climate.notifications.emit import node_topic, open_transport
from climate.notifications.listen import from_broker
from climate.plugins.openstack import session as openstack_session
from climate.provisioner.agent import Provisioner
from climate.provisioner.client import ClimateClient
from climate.provisioner.groups import Groups
from climate.provisioner.nodes import InvalidNodeConfig
from climate.provisioner.power.loader import load_drivers
from climate.provisioner.prepare import Tools

# Seconds between a provisioner's searches for shutdowns while power saving is disabled. If it was
# enabled before, some hosts may have to be switched on again.
_REMNANTS = 60.0


def run(conf: ConfigOpts, _: argparse.Namespace) -> None:
    """Prepare hosts for their leases, and switch idle hosts off, until SIGTERM or SIGINT."""
    with _provisioner(conf) as provisioner:
        provisioner.run(launch.prepare_to_run(), conf.provisioner.poll_interval)


@contextmanager
def _provisioner(conf: ConfigOpts) -> Iterator[Provisioner]:
    """Yield a provisioner; the caller must run it. Raises Misconfigured.

    If a broker and ``[provisioning] topics`` are configured, a notification about a host wakes the
    provisioner at once. Otherwise it finds new tasks only at its next poll.
    """
    settings = conf.provisioner
    tools = Tools(
        climate=_climate(conf),
        drivers=load_drivers(),
        groups=Groups(settings.group_limit, settings.group_pause),
        power_timeout=settings.power_timeout,
        ready_timeout=settings.ready_timeout,
        shutdown_timeout=settings.shutdown_timeout,
    )
    try:
        file = Path(settings.nodes_file)
        pause = 0.0 if conf.provisioning.power_off else _REMNANTS
        provisioner = Provisioner(tools, file, settings.workers, settings.claim_timeout, pause)
    except InvalidNodeConfig as error:
        raise Misconfigured(f"[provisioner] nodes_file: {error}") from None
    broker = conf.notifications.transport_url
    if not (broker and conf.provisioning.topics):
        yield provisioner
        return
    topics = [node_topic(name) for name in provisioner.nodes]
    wake = provisioner.wake.set
    transport = open_transport(conf, broker)
    with from_broker(transport, topics, lambda *_: wake(), "climate-provisioner"):
        yield provisioner


def _climate(conf: ConfigOpts) -> ClimateClient:
    url = conf.provisioner.url
    if conf.api.auth_strategy == "noauth":
        return ClimateClient(Session(auth=NoAuth()), url or http_url(conf.host, conf.port))
    session = openstack_session.make_session(conf)
    region = conf[SERVICE_USER].region_name
    endpoint = url or session.get_endpoint(service_type="reservation", region_name=region)
    if not endpoint:
        raise Misconfigured("[provisioner] url is not set, and the catalog has no reservation")
    return ClimateClient(session, endpoint.rstrip("/").removesuffix("/v1"))
