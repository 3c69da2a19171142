"""Fair share: no project and no hung call can occupy all workers."""

from climate.db.events.waiting import Group, PendingEvent
from climate.manager.claims import Batch, Claim, Task
from climate.manager.events.queue import LARGEST_BATCH, BatchSizeEstimator, FairShare

HOST, IP = "physical:host", "virtual:floatingip"


def waiting(project: str, count: int, *types: str) -> dict[Group, list[PendingEvent]]:
    own = frozenset(types)
    events = [PendingEvent(f"{project} {types} {n}", project, own) for n in range(count)]
    return {(project, own): events}


def running(project: str, count: int, *types: str) -> list[Batch]:
    """Return ``count`` busy workers of a project."""
    own = frozenset(types)
    return [Batch([Claim(str(n), "lease", "me", 1, project, own)]) for n in range(count)]


def projects(chosen: list[list[PendingEvent]]) -> list[str | None]:
    return [batch[0].project_id for batch in chosen]


def test_no_project_gets_all_workers() -> None:
    shares = FairShare(8, [HOST], BatchSizeEstimator())
    assert len(shares.choose(waiting("a", 100, HOST), [], [])) == 6
    busy = running("a", 6, HOST)
    assert shares.choose(waiting("a", 100, HOST), busy, []) == []
    assert projects(shares.choose(waiting("b", 1, HOST), [], [])) == ["b"]


def test_projects_take_turns_whatever_the_length_of_their_queues() -> None:
    shares = FairShare(4, [HOST], BatchSizeEstimator())
    many = waiting("a", 1000, HOST) | waiting("b", 2, HOST) | waiting("c", 2, HOST)
    assert projects(shares.choose(many, [], [])) == ["a", "b", "c"]
    one_free = running("x", 1, HOST) + running("y", 1, HOST)
    assert projects(shares.choose(many, one_free, [])) == ["a"]
    assert projects(shares.choose(many, one_free, [])) == ["b"]
    assert projects(shares.choose(many, one_free, [])) == ["c"]
    assert projects(shares.choose(many, one_free, [])) == ["a"]


def test_a_hanging_type_leaves_workers_to_other_types() -> None:
    shares = FairShare(8, [HOST, IP], BatchSizeEstimator())
    chosen = [
        event
        for project in ("a", "b")
        for event in shares.choose(waiting(project, 4, HOST), [], [])
    ]
    assert len(chosen) == 8
    hanging = running("a", 3, HOST) + running("b", 3, HOST)
    assert shares.choose(waiting("c", 9, HOST), hanging, []) == []
    assert len(shares.choose(waiting("c", 9, IP), hanging, [])) == 1
    assert len(shares.choose(waiting("c", 9), hanging, [])) == 1
    # An event that needs both types waits for the hanging one.
    assert shares.choose(waiting("c", 9, HOST, IP), [*hanging, *running("c", 1, IP)], []) == []


def test_abandoned_calls_occupy_a_bounded_number_of_workers() -> None:
    shares = FairShare(4, [HOST, IP], BatchSizeEstimator())
    left = running("a", 4, HOST)
    assert shares.choose(waiting("b", 9, HOST), [], left) == []
    assert len(shares.choose(waiting("b", 9, IP), [], left)) > 0
    assert len(shares.choose(waiting("b", 9, HOST), [], left[:3])) > 0


def test_a_single_worker_serves_all_types() -> None:
    shares = FairShare(1, [HOST, IP], BatchSizeEstimator())
    for types in ((HOST,), (IP,), ()):
        assert len(shares.choose(waiting("a", 3, *types), [], [])) == 1


def test_fast_events_are_batched_and_slow_ones_are_not() -> None:
    pace = BatchSizeEstimator()
    shares = FairShare(4, [HOST, IP], pace)

    def sizes(*types: str) -> set[int]:
        return {len(batch) for batch in shares.choose(waiting("a", 1000, *types), [], [])}

    assert sizes(HOST) == {1}  # the duration is unknown
    pace.note(frozenset({HOST}), 0.0001)
    pace.note(frozenset({IP}), 3.0)
    assert (sizes(HOST), sizes(IP), sizes(HOST, IP), sizes()) == (
        {LARGEST_BATCH},
        {1},
        {1},
        {LARGEST_BATCH},
    )
    pace.note(frozenset({HOST}), 0.02)
    assert sizes(HOST) == {5}
    for _ in range(20):
        pace.note(frozenset({HOST}), 0.0001)
    assert sizes(HOST) == {LARGEST_BATCH}


def test_a_delay_of_a_single_call_does_not_shrink_the_batches() -> None:
    pace = BatchSizeEstimator()
    pace.note(frozenset({HOST}), 0.02, 200)
    pace.note(frozenset({HOST}), 0.04, 200)  # the same, plus a delay of 20 ms
    assert pace.max_batch(frozenset({HOST})) == LARGEST_BATCH


def test_a_batch_may_mix_projects() -> None:
    pace = BatchSizeEstimator()
    pace.note(frozenset({HOST}), 0.01)
    events = {
        group: batch for n in range(25) for group, batch in waiting(f"p{n}", 1 + n, HOST).items()
    }
    shares = FairShare(4, [HOST], pace)
    first, second = shares.choose(events, [], [])
    assert [event.project_id for event in first] == [f"p{n}" for n in range(10)]
    assert second[0].project_id == "p1"  # p0 has no more
    third, _ = shares.choose(events, [], [])
    assert third[0].project_id == "p11"  # no project was skipped


def test_a_project_at_its_maximum_has_no_part_in_a_batch() -> None:
    pace = BatchSizeEstimator()
    pace.note(frozenset({IP}), 0.01)
    busy = running("a", 6, HOST)
    shares = FairShare(8, [HOST, IP], pace)
    both = waiting("a", 9, IP) | waiting("b", 9, IP)
    assert [set(projects([batch])) for batch in shares.choose(both, busy, [])] == [{"b"}]


def test_a_hanging_call_does_not_delay_the_projects_of_its_batch() -> None:
    """The worker passed the other events on; it counts for the hanging call's project only."""
    pace = BatchSizeEstimator()
    pace.note(frozenset({HOST}), 0.01)
    own = [Claim(str(n), "lease", "me", 1, f"p{n}", frozenset({HOST})) for n in range(9)]
    hanging = [Batch(own), Batch(own)]
    events = waiting("p0", 9, HOST) | waiting("p1", 9, HOST)
    assert FairShare(8, [HOST], pace).choose(events, hanging, []) == []
    for batch in hanging:
        tasks = [Task(claim, None) for claim in own]  # type: ignore[arg-type]  # work of no matter
        batch.begin(tasks)
        batch.next()
        batch.relieve()
    (first, *_) = FairShare(2, [HOST], pace).choose(events, hanging[:1], [])
    assert {event.project_id for event in first} == {"p1"}
    (first, *_) = FairShare(8, [HOST], pace).choose(events, hanging, [])
    assert {event.project_id for event in first} == {"p0", "p1"}


def test_events_without_a_lease_are_not_batched() -> None:
    revocations = [PendingEvent(str(n), None, frozenset()) for n in range(9)]
    chosen = FairShare(8, [HOST], BatchSizeEstimator()).choose(
        {(None, frozenset()): revocations}, [], []
    )
    assert {len(batch) for batch in chosen} == {1}
