"""The simulated cloud: reproducible, shared by processes, slow and failing as configured."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from climate.config import registry as config_registry
from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.simulated_journal import SimulatedFailure
from tests.support.cases import each_case

Make = Callable[..., SimulatedCloud]


@pytest.fixture
def make() -> Make:
    """Return a maker of clouds with options of [simulated]."""

    def run(**options: object) -> SimulatedCloud:
        conf = config_registry.new()
        config_registry.load(conf, "test", [])
        for name, value in options.items():
            conf.set_override(name, value, group="simulated")
        return SimulatedCloud(conf)

    return run


def outcomes(cloud: SimulatedCloud, count: int = 60) -> list[str]:
    """Return the outcome of each of many attempts to change something."""
    result = []
    for number in range(count):
        try:
            cloud.ensure_pool(f"pool-{number}", "lab")
        except SimulatedFailure as failure:
            result.append(str(failure))
        else:
            result.append("done")
    return result


def test_has_the_configured_number_of_hosts_always_the_same(make: Make) -> None:
    result = make(hosts=6).hosts()
    assert [host.external_id for host in result] == [f"sim-{number}" for number in range(1, 7)]
    assert [host.properties["vcpus"] for host in result] == ["16", "16", "16", "64", "16", "16"]
    assert result == make(hosts=6).hosts()


def test_may_have_no_hosts(make: Make) -> None:
    assert make(hosts=0).hosts() == []


def test_the_same_seed_fails_in_the_same_calls(make: Make) -> None:
    first = outcomes(make(failure_rate=0.5, seed=7))
    assert first == outcomes(make(failure_rate=0.5, seed=7))
    assert {outcome == "done" for outcome in first} == {True, False}


def test_another_seed_fails_in_other_calls(make: Make) -> None:
    assert outcomes(make(failure_rate=0.5, seed=7)) != outcomes(make(failure_rate=0.5, seed=8))


@each_case("rate, failures", [(0.0, 0), (1.0, 60)])
def test_the_failure_rate_may_be_never_or_always(make: Make, rate: float, failures: int) -> None:
    result = outcomes(make(failure_rate=rate))
    assert len(result) - result.count("done") == failures


def test_a_failed_change_has_no_effect(make: Make) -> None:
    cloud = make(failure_rate=1.0)
    outcomes(cloud)
    assert cloud.effects() == []


def test_a_change_already_made_has_no_effect_and_cannot_fail(make: Make, tmp_path: Path) -> None:
    cloud = make(journal=str(tmp_path / "cloud"))
    cloud.ensure_pool("pool", "lab")
    cloud.add_host("pool", "sim-1")
    cloud.boot_server("sim-2", "server")
    cloud.snapshot_servers("sim-2", "the end")
    done = cloud.effects()
    broken = make(journal=str(tmp_path / "cloud"), failure_rate=1.0)
    broken.ensure_pool("pool", "lab")
    broken.add_host("pool", "sim-1")
    broken.remove_host("pool", "sim-2")
    broken.delete_pool("no such pool")
    broken.delete_servers("pool", "sim-1")
    broken.snapshot_servers("sim-2", "the end")
    assert broken.effects() == done


def test_a_change_is_delayed_before_its_effect_and_a_read_is_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = make(delay=3600)
    effects_at_pause: list[tuple[float, int]] = []
    monkeypatch.setattr(
        time,
        "sleep",
        lambda seconds: effects_at_pause.append((seconds, len(cloud.effects()))),
    )
    assert cloud.hosts()
    assert cloud.servers("sim-1") == []
    assert cloud.pool_hosts("pool") == []
    assert effects_at_pause == []
    cloud.ensure_pool("pool", "lab")
    assert effects_at_pause == [(3600, 0)]


def test_clouds_with_one_journal_share_their_state(make: Make, tmp_path: Path) -> None:
    first, other = (make(journal=str(tmp_path / "cloud")) for _ in range(2))
    first.ensure_pool("pool", "lab")
    other.add_host("pool", "sim-1")
    assert first.pool_hosts("pool") == ["sim-1"]
    with pytest.raises(SimulatedFailure, match="sim-1 is still in pool pool"):
        first.add_host("another", "sim-1")
    first.boot_server("sim-1", "vm")
    assert other.servers("sim-1") == ["vm"]
    with pytest.raises(SimulatedFailure, match="pool pool still has sim-1"):
        first.delete_pool("pool")
    other.delete_servers("pool", "sim-1")
    other.remove_host("pool", "sim-1")
    first.delete_pool("pool")
    assert first.servers("sim-1") == []
    assert first.effects() == other.effects()


def test_clouds_without_a_journal_share_nothing(make: Make) -> None:
    first, other = make(), make()
    first.ensure_pool("pool", "lab")
    first.add_host("pool", "sim-1")
    assert other.pool_hosts("pool") == []


def test_concurrent_snapshots_for_one_occasion_keep_one_image(make: Make, tmp_path: Path) -> None:
    here, elsewhere = (make(journal=str(tmp_path / "cloud")) for _ in range(2))
    here.boot_server("sim-1", "server")
    image = {"host": "sim-1", "server": "server", "occasion": "the end"}
    for cloud in (here, elsewhere):  # both saw that no image exists
        cloud.act("snapshot", **image)
    here.snapshot_servers("sim-1", "another end")
    kept = [effect["occasion"] for effect in elsewhere.effects() if effect["effect"] == "snapshot"]
    assert kept == ["the end", "another end"]


def test_a_journal_outlives_the_process(make: Make, tmp_path: Path) -> None:
    first = make(journal=str(tmp_path / "cloud"))
    first.ensure_pool("pool", "lab")
    first.add_host("pool", "sim-1")
    assert make(journal=str(tmp_path / "cloud")).pool_hosts("pool") == ["sim-1"]


def test_ignores_a_line_until_it_is_complete(make: Make, tmp_path: Path) -> None:
    journal = tmp_path / "cloud"
    cloud = make(journal=str(journal))
    line = json.dumps({"effect": "ensure_pool", "pool": "pool", "project": "lab"}) + "\n"
    journal.write_text(line[:20])
    assert cloud.effects() == []
    journal.write_text(line)
    assert [effect["pool"] for effect in cloud.effects()] == ["pool"]


def test_concurrent_writers_neither_lose_nor_tear_lines(make: Make, tmp_path: Path) -> None:
    clouds = [make(journal=str(tmp_path / "cloud")) for _ in range(4)]

    def write(cloud: SimulatedCloud, name: str) -> None:
        for number in range(50):
            cloud.boot_server("sim-1", f"{name}-{number}")

    threads = [
        threading.Thread(target=write, args=(cloud, f"{index}-{half}"))
        for index, cloud in enumerate(clouds)
        for half in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(cloud.servers("sim-1")) == 400 for cloud in clouds)
    assert len((tmp_path / "cloud").read_text().splitlines()) == 400
