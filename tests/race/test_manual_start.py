"""Users start a reservation at the moment at which its lease ends."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from climate.manager.audit.cloud import audit
from climate.manager.audit.invariants import violations
from tests.race.crowd import SIZE, Crowd, at_work, wait_for_all
from tests.race.databases import postgresql_first
from tests.support.process import eventually
from tests.support.service import Story

PLUGINS = ["physical.host.plugin", "virtual.volume.plugin"]


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """Return the path of the cloud that all processes share."""
    return str(tmp_path / "cloud")


@pytest.fixture
def here(database_url: str, journal: str) -> Iterator[Story]:
    """Return the service in this process, with 100 GiB for volumes."""
    with at_work(database_url, manager__plugins=PLUGINS, simulated__journal=journal) as story:
        body = {"resource_type": "virtual:volume", "name": "silver"}
        story.ok("POST", "/v2/resources", {**body, "properties": {"gigabytes": 100}})
        yield story


def _act(number: int, url: str, journal: str, path: str, minutes: float) -> int:
    """Start or stop the reservation, or run what is due; return the status of the answer."""
    with at_work(url, manager__plugins=PLUGINS, simulated__journal=journal) as story:
        story.dispatcher._owner = f"manager-{number}"
        story.clock.advance(60 * minutes)
        wait_for_all()
        if number % 2:
            story.run()
            return 0
        verb = "stop" if number % 4 else "start"
        return story.call("POST", f"{path}/{verb}").status_code


def _is_over(story: Story, lease_id: str) -> bool:
    story.run()
    story.clock.advance(1)
    return bool(story.lease(lease_id)["status"] == "TERMINATED")


@postgresql_first
def test_a_start_at_the_end_of_the_lease_leaves_nothing_behind(
    crowd: Crowd, database_url: str, journal: str, here: Story
) -> None:
    begin = here.clock.now()
    for seconds in (-0.05, 0):
        params = {"volume_type": "silver", "amount": 2, "size": 10, "on_start": "manual"}
        volumes = {"resource_type": "virtual:volume", "params": params}
        lease = here.ok("POST", "/v2/leases", here.asking(0, 60, reservations=[volumes]))
        path = f"/v2/leases/{lease['id']}/reservations/{lease['reservations'][0]['id']}"
        here.run()
        here.clock.advance(3600 + seconds)
        minutes = (here.clock.now() - begin).total_seconds() / 60
        answers = crowd.do(_act, database_url, journal, path, minutes)
        assert set(answers) <= {0, 202, 404, 409}
        assert answers.count(0) == SIZE // 2
        assert (202 in answers) == (seconds < 0)
        eventually(partial(_is_over, here, lease["id"]), "the lease is over")
        assert [drift.description for drift in audit(here.runtime)] == []
        assert list(violations(here.runtime.store)) == []
