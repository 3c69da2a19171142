"""Events run in batches: one that cannot proceed does not hold up the others."""

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.core.lease.schedule import START
from climate.db.tables.leases import EventRow, LeaseRow
from climate.manager import claims as claims_module
from climate.manager.claims import Result, Task
from climate.manager.events import begin as beginning
from climate.manager.events import outcomes
from climate.manager.events import runner as events
from climate.manager.events.queue import BatchSizeEstimator
from tests.support.service import Story


def fast_leases(story: Story, count: int = 4) -> list[str]:
    """Return leases that start in an hour; it is known by then that starts are fast_leases."""
    story.reserve(0, 1)
    story.run()
    story.at(2)
    return [story.reserve(58, 118)["id"] for _ in range(count)]


def statuses(story: Story, leases: list[str]) -> list[str]:
    return [story.lease(id_)["status"] for id_ in leases]


def attempts(story: Story, lease_id: str) -> int:
    query = sa.select(EventRow.attempt).where(EventRow.lease_id == lease_id, EventRow.kind == START)
    with story.runtime.database.read() as session:
        return session.scalars(query).one()


def test_a_batch_of_starts_takes_at_most_three_statements_more_than_one(
    story_everywhere: Story,
) -> None:
    story, counts = story_everywhere, []
    for count in (1, 4):
        leases = fast_leases(story, count)
        statements: list[object] = []

        def note(*given: object, statements: list[object] = statements) -> None:
            statements.append(given[2])

        engine = story.runtime.database.engine
        sa.event.listen(engine, "before_cursor_execute", note)
        story.at(58)
        sa.event.remove(engine, "before_cursor_execute", note)
        assert statuses(story, leases) == ["ACTIVE"] * count
        counts.append(len(statements))
        story.at(60)
    assert counts[1] <= counts[0] + 3


@pytest.mark.parametrize("where", ["begin", "end"])
def test_an_event_that_cannot_be_stored_does_not_affect_the_others(
    story: Story, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = fast_leases(story)
    module, name = (beginning, "_status_while") if where == "begin" else (outcomes, "after")
    genuine = getattr(module, name)

    def spoilt(*given: object) -> object:
        lease = next(item for item in given if isinstance(item, Lease))
        assert lease.id != leases[1], "a defect of ours"
        return genuine(*given)

    monkeypatch.setattr(module, name, spoilt)
    story.at(58)
    left = "PENDING" if where == "begin" else "STARTING"
    assert statuses(story, leases) == ["ACTIVE", left, "ACTIVE", "ACTIVE"]


# SQLite has one writer at a time.
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_an_event_whose_lease_is_locked_is_left_for_later(story_everywhere: Story) -> None:
    story = story_everywhere
    leases = fast_leases(story)
    lock = sa.select(LeaseRow.id).where(LeaseRow.id == leases[1]).with_for_update()
    with story.runtime.database.engine.begin() as connection:
        connection.execute(lock)
        story.at(58)
        assert statuses(story, leases) == ["ACTIVE", "PENDING", "ACTIVE", "ACTIVE"]
    story.at(0.1)
    assert statuses(story, leases) == ["ACTIVE"] * 4
    assert attempts(story, leases[1]) == 1


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_lease_locked_before_the_commit_does_not_keep_the_others_locked(
    story_everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = story_everywhere
    leases = fast_leases(story)
    tries: list[int] = []
    busy: list[list[str | None]] = []
    lock = sa.select(LeaseRow.id).where(LeaseRow.id == leases[1]).with_for_update()
    with story.runtime.database.engine.connect() as other:

        def relock_leases(session: Session, tasks: list[Task]) -> object:
            if len(tasks) == 1:
                other.rollback()
            elif not tries:
                other.execute(lock)
            tries.append(len(tasks))
            found = claims_module.relock_leases(session, tasks)
            busy.append([claim.lease_id for claim in found[1]])
            return found

        monkeypatch.setattr(outcomes, "relock_leases", relock_leases)
        story.at(58)
    assert (tries[:2], busy[:2]) == ([4, 1], [[leases[1]], []])
    assert statuses(story, leases) == ["ACTIVE"] * 4


def reclaim(story: Story, lease_id: str) -> None:
    """Have another manager claim the start of a lease, although it is claimed."""
    theirs = sa.update(EventRow).where(EventRow.lease_id == lease_id, EventRow.kind == START)
    with story.runtime.database.engine.begin() as connection:
        connection.execute(theirs.values(owner="another", attempt=2))


def test_an_event_reclaimed_during_the_call_is_left_to_its_new_owner(
    story_everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = story_everywhere
    leases = fast_leases(story)
    plugin = story.runtime.plugins["physical:host"]
    genuine = plugin.start

    def start(lease: Lease, *given: object) -> object:
        if lease.id == leases[1]:  # while we are at it
            reclaim(story, lease.id)
        return genuine(lease, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(plugin, "start", start)
    story.at(58)
    assert statuses(story, leases) == ["ACTIVE", "STARTING", "ACTIVE", "ACTIVE"]
    assert "lease.event.start_lease" not in story.event_types(leases[1])


# SQLite has one writer at a time.
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_an_event_reclaimed_before_the_commit_is_left_to_its_new_owner(
    story_everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = story_everywhere
    leases = fast_leases(story)
    taken: list[str] = []

    def relock_leases(session: Session, tasks: list[Task]) -> object:
        found = claims_module.relock_leases(session, tasks)
        if not taken:
            taken.append(leases[1])
            reclaim(story, leases[1])
        return found

    monkeypatch.setattr(outcomes, "relock_leases", relock_leases)
    story.at(58)
    assert statuses(story, leases) == ["ACTIVE", "STARTING", "ACTIVE", "ACTIVE"]
    assert "lease.event.start_lease" not in story.event_types(leases[1])


def test_a_worker_whose_calls_are_slow_releases_the_rest_of_its_batch(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single call is slow enough to relieve the worker; all of them together are."""
    leases, started = fast_leases(story), []
    plugin = story.runtime.plugins["physical:host"]
    genuine = plugin.start

    def start(lease: Lease, *given: object) -> object:
        story.clock.advance(0.6)
        started.append(lease.id)
        return genuine(lease, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(plugin, "start", start)
    story.clock.advance(58 * 60)
    [batch] = [item for item in story.dispatcher._claim() if item.types]
    pace = BatchSizeEstimator()
    pace.note(batch.types, 0.001)
    events.run(story.runtime, batch, pace)
    assert len(started) == 2
    assert sorted(statuses(story, leases)) == ["ACTIVE", "ACTIVE", "STARTING", "STARTING"]
    assert pace.max_batch(batch.types) == 1
    story.run()
    assert statuses(story, leases) == ["ACTIVE"] * 4
    assert [attempts(story, lease) for lease in leases] == [1] * 4
    late = "climate_event_lateness_seconds"
    get, starts = story.runtime.metrics.registry.get_sample_value, {"kind": START}
    assert get(f"{late}_count", starts) == 1 + 4, "what was handed back was not tried"
    assert get(f"{late}_sum", starts) == pytest.approx(0 + 0.6 + 1.2 + 1.8)


def test_finished_events_are_stored_even_if_the_rest_cannot_be_released(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = fast_leases(story)

    def fail(*_: object) -> None:
        raise sa.exc.OperationalError("give way", {}, Exception("the database is away"))

    monkeypatch.setattr(events, "release", fail)
    story.clock.advance(58 * 60)
    [batch] = [item for item in story.dispatcher._claim() if item.types]
    with pytest.raises(sa.exc.OperationalError):
        events.run(story.runtime, batch, BatchSizeEstimator())
    assert statuses(story, leases) == ["ACTIVE"] * 4


def test_a_relieved_worker_keeps_only_its_current_call(story: Story) -> None:
    leases = fast_leases(story)
    story.clock.advance(58 * 60)
    [batch] = [item for item in story.dispatcher._claim() if item.types]
    plugin = story.runtime.plugins["physical:host"]
    genuine = plugin.start
    found: list[tuple[list[Task], list[Result]]] = []

    def start(lease: Lease, *given: object) -> object:
        if not found and lease.id == leases[1]:
            found.append(batch.relieve())
            assert [claim.lease_id for claim in batch.claims] == [lease.id]
        return genuine(lease, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin, "start", start)
        events.run(story.runtime, batch, BatchSizeEstimator())
    [(tasks, results)] = found
    done = {item.task.claim.lease_id for item in results}
    assert done | {item.claim.lease_id for item in tasks} == set(leases) - {leases[1]}
    assert statuses(story, [leases[1]]) == ["ACTIVE"]
