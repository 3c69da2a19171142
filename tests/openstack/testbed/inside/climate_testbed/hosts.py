"""Many hosts in one nova-compute: ``FAKE_HOSTS="a b c=n1,n2" python -m climate_testbed.hosts``.

Each is a whole compute service to Nova: it can be disabled, put into aggregates and asked for by
name, and has a queue, hypervisors and resource providers of its own. A host has one node with its
own name, unless others are given.
"""

import os
import re
import threading
import time
import uuid
from typing import Any

# First, as it decides how Nova does threading.
from nova.cmd import compute as command  # isort: skip
from nova import context, objects, service
from nova.virt import fake, node

_NODES = {
    host: nodes.split(",") if nodes else [host]
    for host, _, nodes in (given.partition("=") for given in os.environ["FAKE_HOSTS"].split())
}
# Images whose guests take time, in seconds.
_SLOW = re.compile(r"build-(\d+)-boot-(\d+)")


class SteadyDriver(fake.FakeDriver):  # type: ignore[misc]  # Nova has no types
    """Nova's fake driver, which survives a restart of its service.

    The original creates new ids for its nodes at each start, which Nova rejects, and forgets its
    guests, which Nova would then stop. Guests of some images take their time.
    """

    vcpus = 16
    memory_mb = 65536
    local_gb = 1000

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._boots: dict[str, float] = {}

    def spawn(
        self, context: Any, instance: Any, image_meta: Any, *others: Any, **more: Any
    ) -> None:
        """Take as long as the image's name says: ``build-5-boot-20`` takes 5 s, then 20 s.

        At the end of a live migration there is no image.
        """
        if named := _SLOW.fullmatch(image_meta.name or "" if image_meta else ""):
            build, boot = map(float, named.groups())
            time.sleep(build)
            self._boots[instance.uuid] = time.monotonic() + boot
        super().spawn(context, instance, image_meta, *others, **more)

    def get_console_output(self, context: Any, instance: Any) -> str:
        """Show a login prompt once the guest has booted."""
        has_booted = time.monotonic() >= self._boots.get(instance.uuid, 0.0)
        return "Welcome\nguest login: " if has_booted else "Loading kernel"

    def init_host(self, host: str) -> None:
        super().init_host(host)
        self._set_nodes(_NODES[host])
        left = objects.InstanceList.get_by_host(
            context.get_admin_context(), host, expected_attrs=["flavor"]
        )
        for guest in left:
            self.instances[guest.uuid] = fake.FakeInstance(
                guest.name, guest.power_state, guest.uuid
            )
            size = guest.flavor
            self.resources.claim(size.vcpus, size.memory_mb, size.root_gb)

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        found = super().get_available_resource(nodename)
        return {**found, "uuid": _id(nodename)} if found else found

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {_id(name): name for name in self.get_available_nodes()}


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def main() -> None:
    """Run nova-compute, with one service per host."""
    first, *others = _NODES
    create, serve = service.Service.create, service.serve
    rest: list[Any] = []

    def create_all(**options: Any) -> service.Service:
        # Nova takes a restarted host without this file for one that was cloned.
        node.get_local_node_uuid()
        made = create(host=first, **options)
        rest.extend(create(host=name, **options) for name in others)
        return made

    def start_rest() -> None:
        for item in rest:
            item.start()

    def serve_all(server: service.Service, **options: Any) -> None:
        threading.Thread(target=start_rest).start()
        serve(server, **options)

    # Nova imports drivers from nova.virt only.
    fake.SteadyDriver = SteadyDriver
    service.Service.create, service.serve = create_all, serve_all
    command.main()


if __name__ == "__main__":
    main()
