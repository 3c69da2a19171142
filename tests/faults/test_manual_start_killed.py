"""A process is killed while it starts a reservation: what it acknowledged happens once."""

import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from climate.api.v2.leases import manual_start
from climate.db.events import queue as event_queue
from climate.manager.audit.cloud import audit
from climate.manager.audit.invariants import violations
from tests.race.crowd import at_work
from tests.support.process import FORKSERVER, eventually
from tests.support.service import Story

pytestmark = pytest.mark.faults

NIGHTLY = pytest.mark.nightly(reason="PostgreSQL shows the same in CI")
PLUGINS = ["physical.host.plugin", "virtual.volume.plugin"]
# More statements than a request or a manager's run has.
_ENOUGH = 60
_DEAD = "the manager that dies"

postgresql_first = pytest.mark.parametrize(
    "backend",
    ["postgresql", *(pytest.param(item, marks=NIGHTLY) for item in ("sqlite", "mariadb"))],
    indirect=True,
)


def _stop_at(
    number: int, url: str, journal: str, minutes: float, path: str | None, seen: Connection
) -> None:
    """Send a request to ``path``, or run what is due; stop before the statement ``number``.

    If there are fewer statements, stop at the end.
    """
    with at_work(url, manager__plugins=PLUGINS, simulated__journal=journal) as story:
        story.clock.advance(60 * minutes)
        story.dispatcher._owner = _DEAD
        left = [number]

        def stop(what: str) -> None:
            seen.send(what)
            time.sleep(1_000)

        def count(*_arguments: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                stop("statement")

        engine = story.runtime.database.engine
        sa.event.listen(engine, "before_cursor_execute", count)
        sa.event.listen(engine, "commit", count)
        if path is None:
            story.run()
        else:
            patch = pytest.MonkeyPatch()
            patch.setattr(manual_start, "reservation_body", lambda _: stop("answer"))
            story.call("POST", path)
        stop("end")


def _kill_at(
    number: int, url: str, journal: str, minutes: float = 0, path: str | None = None
) -> str:
    """Kill a process that does what ``_stop_at`` says; return where it was."""
    ours, theirs = FORKSERVER.Pipe()
    arguments = (number, url, journal, minutes, path, theirs)
    process = FORKSERVER.Process(target=_stop_at, args=arguments, daemon=True)
    process.start()
    place: str = ours.recv()
    process.kill()
    process.join()
    ours.close()
    theirs.close()
    return place


def _lease(story: Story) -> str:
    """Return the path of a manual reservation of a lease that runs."""
    params = {"volume_type": "silver", "amount": 1, "size": 1, "on_start": "manual"}
    volumes = {"resource_type": "virtual:volume", "params": params}
    lease = story.ok("POST", "/v2/leases", story.asking(0, 60, reservations=[volumes]))
    story.run()
    return f"/v2/leases/{lease['id']}/reservations/{lease['reservations'][0]['id']}"


def _reservation(story: Story, path: str) -> dict[str, Any]:
    lease = story.ok("GET", path.partition("/reservations")[0])
    return dict(lease["reservations"][0])


def _created(story: Story) -> int:
    return [effect["effect"] for effect in story.cloud.effects()].count("create_volume")


def _register(story: Story) -> None:
    body = {"resource_type": "virtual:volume", "name": "silver"}
    story.ok("POST", "/v2/resources", {**body, "properties": {"gigabytes": 100, "volumes": 100}})


def _go_on(story: Story, path: str) -> None:
    """Let another manager start the reservation, as soon as the server has freed the dead's locks.

    PostgreSQL notices the death of a client a moment later than this process does.
    """

    def is_started() -> bool:
        story.runtime.database.write(lambda session: event_queue.release(session, _DEAD))
        story.run()
        return bool(_reservation(story, path)["run_state"] == "started")

    eventually(is_started, "the start of the reservation")


def _check(story: Story, path: str, before: int) -> None:
    """Check that the reservation runs, and that its volume was created once."""
    reservation = _reservation(story, path)
    assert reservation["run_state"] == "started"
    assert len(reservation["details"]["volumes"]) == 1
    assert _created(story) == before + 1
    assert [drift.description for drift in audit(story.runtime)] == []
    assert list(violations(story.runtime.store)) == []


@postgresql_first
def test_a_request_that_is_killed_starts_the_reservation_or_changes_nothing(
    database_url: str, tmp_path: Path
) -> None:
    journal = str(tmp_path / "cloud")
    options = {"manager__plugins": PLUGINS, "simulated__journal": journal}
    with at_work(database_url, **options) as story:
        _register(story)
        path, number, place = _lease(story), 1, ""
        while _reservation(story, path)["run_state"] == "stopped":
            place = _kill_at(number, database_url, journal, path=f"{path}/start")
            number += 1
            assert number < _ENOUGH
        assert place in {"statement", "answer"}
        assert number > 5
        story.run()
        _check(story, path, 0)
        again = story.call("POST", f"{path}/start")
        assert (again.status_code, again.get_json()["run_state"]) == (202, "started")


@postgresql_first
def test_a_manager_that_is_killed_at_any_statement_starts_the_reservation_once(
    database_url: str, tmp_path: Path
) -> None:
    journal = str(tmp_path / "cloud")
    options = {"manager__plugins": PLUGINS, "simulated__journal": journal}
    places = []
    with at_work(database_url, **options) as story:
        _register(story)
        for number in range(1, _ENOUGH):
            path, before = _lease(story), _created(story)
            story.ok("POST", f"{path}/start")
            place = _kill_at(number, database_url, journal)
            places.append((place, _created(story) - before, _reservation(story, path)["run_state"]))
            _go_on(story, path)
            _check(story, path, before)
            if place == "end":
                break
    assert places[-1] == ("end", 1, "started")
    assert ("statement", 0, "starting") in places
    assert ("statement", 1, "starting") in places, "killed between the cloud and the commit"
