"""Leases of stacks: what tests reserve, and what they look at."""

from typing import Any

from climate.plugins.stacks.cloud import Stack
from climate.plugins.stacks.template import Source
from tests.conftest import MakeStory
from tests.support import prepared
from tests.support.service import Story

PLUGINS = [
    "physical.host.plugin",
    "flavor.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
]
NETWORK = "sim-public"


def server(flavor: Any = "m1.small", **more: Any) -> dict[str, Any]:
    return {"type": "OS::Nova::Server", "properties": {"flavor": flavor, **more}}


def group(largest: Any = 4) -> dict[str, Any]:
    properties = {"min_size": 1, "max_size": largest, "resource": server({"get_param": "flavor"})}
    return {"type": "OS::Heat::AutoScalingGroup", "properties": properties}


def address() -> dict[str, Any]:
    return {"type": "OS::Neutron::FloatingIP", "properties": {"floating_network": NETWORK}}


def template(**resources: Any) -> dict[str, Any]:
    return {
        "heat_template_version": "2016-10-14",
        "parameters": {"flavor": {"type": "string", "default": "m1.large"}},
        "resources": resources,
    }


SHOP = template(web=server(), workers=group(), address=address())


def stack(source: Any = SHOP, **params: Any) -> dict[str, Any]:
    return {"resource_type": "virtual:stack", "params": {"template": source} | params}


def request(story: Story, *reservations: dict[str, Any], first: float = 60) -> dict[str, Any]:
    return story.asking(first, 120, reservations=list(reservations))


def create(story: Story, *reservations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return dict(story.ok("POST", "/v2/leases", request(story, *reservations, **fields)))


def shown(story: Story, lease: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease['id']}"))


def amounts(lease: dict[str, Any]) -> dict[str, int]:
    parts = [item["params"] for item in lease["reservations"] if "part" in item["params"]]
    return {item["part"]: item["amount"] for item in parts}


def stacks(story: Story) -> list[Stack]:
    cloud: Any = story.runtime.plugins["virtual:stack"]
    return list(cloud.cloud.stacks())


def advance(story: Story, minutes: float) -> None:
    """Advance the clock, and let events finish that wait some seconds for the cloud."""
    story.at(minutes)
    for _ in range(3):
        story.at(1 / 30)


def prepare_story(make_story: MakeStory) -> Story:
    """Return a service that reserves three hosts of 16 VCPU and one of 64 with GPUs."""
    made = make_story(manager__plugins=PLUGINS)

    def prepare() -> None:
        made.register(4)
        for last in range(2, 6):
            body = {"floating_network_id": NETWORK, "floating_ip_address": f"198.51.100.{last}"}
            made.ok("POST", "/v1/floatingips", body)

    prepared.once(made, "stacks", prepare)
    return made


def change(lease: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {"reservations": [{"id": lease["reservations"][0]["id"], "params": params}]}


def cloud_of(story: Story) -> Any:
    plugin: Any = story.runtime.plugins["virtual:stack"]
    return plugin.cloud


def running(story: Story, source: Any = None, **params: Any) -> dict[str, Any]:
    """Return a running lease of a stack."""
    lease = create(story, stack(source or template(workers=group(2)), **params))
    advance(story, 60)
    return shown(story, lease)


def update(story: Story, source: Any, tags: bool = False, **parameters: Any) -> Stack:
    """Update the only stack as its user does, who gives no tags (``openstack stack update``)."""
    [present] = stacks(story)
    kept = list(present.tags) if tags else ["mine"]
    cloud_of(story).update(None, present, Source(source, parameters=parameters), kept)
    return present


def deployed(story: Story) -> Source:
    [present] = stacks(story)
    source: Source = cloud_of(story).current(present)
    return source


def live(lease: dict[str, Any]) -> dict[str, Any]:
    present = [item for item in lease["reservations"] if item["status"] == "active"]
    return {**lease, "reservations": present}
