"""Who gets a worker when more is due than workers are free."""

from climate.db.line import Waiting
from climate.manager.claims import Claim
from climate.manager.shares import Shares

HOST, IP = "physical:host", "virtual:floatingip"


def waiting(project: str, count: int, *types: str) -> list[Waiting]:
    """Return so many events of a project."""
    return [Waiting(f"{project} {types} {n}", project, frozenset(types)) for n in range(count)]


def running(project: str, count: int, *types: str) -> list[Claim]:
    """Return so many claims of a project that are at work."""
    return [Claim(str(n), "lease", "me", 1, project, frozenset(types)) for n in range(count)]


def projects(chosen: list[Waiting]) -> list[str | None]:
    """Return whose they are."""
    return [one.project_id for one in chosen]


def test_no_project_gets_all_workers() -> None:
    shares = Shares(8, [HOST])
    assert len(shares.choose(waiting("a", 100, HOST), [], [])) == 6
    busy = running("a", 6, HOST)
    assert shares.choose(waiting("a", 100, HOST), busy, []) == []
    assert projects(shares.choose(waiting("b", 1, HOST), [], [])) == ["b"]


def test_projects_take_turns_however_many_one_of_them_has() -> None:
    shares = Shares(4, [HOST])
    many = waiting("a", 1000, HOST) + waiting("b", 2, HOST) + waiting("c", 2, HOST)
    assert projects(shares.choose(many, [], [])) == ["a", "b", "c"]
    one_free = running("x", 1, HOST) + running("y", 1, HOST)
    assert projects(shares.choose(many, one_free, [])) == ["a"]
    assert projects(shares.choose(many, one_free, [])) == ["b"]
    assert projects(shares.choose(many, one_free, [])) == ["c"]
    assert projects(shares.choose(many, one_free, [])) == ["a"]


def test_a_type_that_hangs_leaves_workers_to_others_and_to_what_only_tells() -> None:
    shares = Shares(8, [HOST, IP])
    chosen = [
        one for project in ("a", "b") for one in shares.choose(waiting(project, 4, HOST), [], [])
    ]
    assert len(chosen) == 8
    hanging = running("a", 3, HOST) + running("b", 3, HOST)
    assert shares.choose(waiting("c", 9, HOST), hanging, []) == []
    assert len(shares.choose(waiting("c", 9, IP), hanging, [])) == 1
    assert len(shares.choose(waiting("c", 9), hanging, [])) == 1
    # What needs both types waits for the one that hangs.
    assert shares.choose(waiting("c", 9, HOST, IP), [*hanging, *running("c", 1, IP)], []) == []


def test_what_was_given_up_and_still_runs_stays_few() -> None:
    shares = Shares(4, [HOST, IP])
    left = running("a", 4, HOST)
    assert shares.choose(waiting("b", 9, HOST), [], left) == []
    assert len(shares.choose(waiting("b", 9, IP), [], left)) > 0
    assert len(shares.choose(waiting("b", 9, HOST), [], left[:3])) > 0


def test_one_worker_does_all() -> None:
    shares = Shares(1, [HOST, IP])
    for types in ((HOST,), (IP,), ()):
        assert len(shares.choose(waiting("a", 3, *types), [], [])) == 1
