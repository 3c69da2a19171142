"""Single steps of the planner, of the inventory synchronisation and of a provisioner."""

from typing import Any

from climate.manager.process.lead_times import LeadTimes
from climate.manager.provisioning import planner as preparing
from climate.manager.resources import inventory_sync as inventory
from tests.support.service import Story


def plan(story: Story) -> int:
    """Let the planner request preparations; return how many it requested."""
    settings = story.runtime.settings.provisioning
    assert settings is not None
    return preparing.plan(story.runtime, settings, LeadTimes(settings))


def synchronise_inventory(story: Story) -> None:
    """Synchronise the inventory twice, so that it detects and replaces a failed host."""
    lost = inventory.synchronise(story.runtime)
    inventory.synchronise(story.runtime, lost)


def preparations(story: Story, query: str = "state=wanted") -> list[dict[str, Any]]:
    """Return the preparations that match a query string."""
    return list(story.ok("GET", f"/v2/preparations?{query}")["preparations"])


def report(
    story: Story, task: dict[str, Any], state: str, noun: str = "preparations", **more: Any
) -> dict[str, Any]:
    body = {"state": state, "owner": "p1", **more}
    return dict(story.ok("POST", f"/v2/{noun}/{task['id']}/report", body))


def rejected_report(
    story: Story, task: dict[str, Any], state: str, noun: str = "preparations", **more: Any
) -> str:
    """Report a state that is rejected with 409; return the error code."""
    body = {"state": state, "owner": "p1", **more}
    return str(story.problem(409, "POST", f"/v2/{noun}/{task['id']}/report", body)["code"])


def readiness(story: Story, lease_id: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease_id}/readiness"))


def host_readiness(story: Story, resource_id: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/resources/{resource_id}/readiness"))
