"""What managers and provisioners do about hosts that are to be ready, by hand."""

from typing import Any

from climate.manager.provisioning import planner as preparing
from climate.manager.provisioning.lead_times import LeadTimes
from climate.manager.resources import inventory_sync as inventory
from tests.support.service import Story


def look(story: Story) -> int:
    """Have a manager look at what is to be got ready."""
    settings = story.runtime.settings.provisioning
    assert settings is not None
    return preparing.plan(story.runtime, settings, LeadTimes(settings))


def look_at_cloud(story: Story) -> None:
    """Have a manager look at the cloud."""
    lost = inventory.synchronise(story.runtime)
    inventory.synchronise(story.runtime, lost)


def wanted(story: Story, asked: str = "state=wanted") -> list[dict[str, Any]]:
    """Return the preparations that are asked for."""
    return list(story.ok("GET", f"/v2/preparations?{asked}")["preparations"])


def report(story: Story, one: dict[str, Any], state: str, **more: Any) -> dict[str, Any]:
    """Say something of a preparation, and return what it is then."""
    body = {"state": state, "owner": "p1", **more}
    return dict(story.ok("POST", f"/v2/preparations/{one['id']}/report", body))


def readiness(story: Story, lease_id: str) -> dict[str, Any]:
    """Return how ready the hosts of a lease are."""
    return dict(story.ok("GET", f"/v2/leases/{lease_id}/readiness"))
