"""Requests and prepared databases that tests of several folders use."""

import shutil
from pathlib import Path
from typing import Any

from tests.support.service import Story

HOSTS_AND_INSTANCES = ["physical.host.plugin", "virtual.instance.plugin"]
ONLY_SIM_4 = '["==", "$vcpus", "64"]'  # sim-1 .. sim-3 have 16 VCPU


def copy_hosts(template: Path, folder: Path) -> None:
    """Copy a database and a cloud with the registered hosts sim-1 .. sim-4."""
    shutil.copy(template, folder / "climate.sqlite")
    shutil.copy(template.parent / "cloud", folder / "cloud")


def instances(amount: Any = 1, vcpus: Any = 4, **fields: Any) -> dict[str, Any]:
    """Return a v1 request for instances as the command line sends it."""
    return {
        "resource_type": "virtual:instance",
        "amount": amount,
        "vcpus": vcpus,
        "memory_mb": 1024,
        "disk_gb": 10,
        "affinity": "None",
        "resource_properties": "",
        **fields,
    }


def status_of_request(
    story: Story, *reservations: dict[str, Any], start: float = 60, end: float = 120
) -> int:
    """Request a lease by v1 and return the status of the answer."""
    body = story.lease_body(start, end, reservations=list(reservations))
    return story.call("POST", "/v1/leases", body).status_code


def times_of_day(lease: dict[str, Any], event_type: str) -> list[str]:
    """Return the times of day of a v1 lease's events of a type."""
    return [event["time"][11:16] for event in lease["events"] if event["event_type"] == event_type]


def event_status(story: Story, lease: dict[str, Any], event_type: str) -> str:
    events = story.lease(lease["id"])["events"]
    return str(next(event["status"] for event in events if event["event_type"] == event_type))


def change_of(lease: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Return a v1 change of the lease's first reservation."""
    return [{"id": lease["reservations"][0]["id"], **fields}]


def put(story: Story, lease: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Change a lease by v1, check that a GET returns the same lease, and return it."""
    answer = story.ok("PUT", f"/v1/leases/{lease['id']}", fields)
    assert answer == {"lease": story.lease(lease["id"])}
    return dict(answer["lease"])


def rejected_put(story: Story, lease: dict[str, Any], status: int = 400, **fields: Any) -> str:
    """Send a v1 change that must be rejected and must change nothing; return the message."""
    before = visible_state(story)
    message = story.refused(status, "PUT", f"/v1/leases/{lease['id']}", fields)
    assert visible_state(story) == before
    return message


def visible_state(story: Story) -> list[Any]:
    """Return everything that a rejected request must not change."""
    return [
        story.ok("GET", "/v1/leases"),
        story.ok("GET", "/v1/os-hosts/allocations"),
        story.published(),
        story.cloud.effects(),
    ]


def pool_of(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the hosts that were handed over to the lease's first reservation."""
    return list(story.cloud.pool_hosts(lease["reservations"][0]["id"]))


def effect_names(story: Story, *names: str) -> list[str]:
    """Return the names of the effects on the cloud, in order; all or only these."""
    done = [effect["effect"] for effect in story.cloud.effects()]
    return [name for name in done if not names or name in names]
