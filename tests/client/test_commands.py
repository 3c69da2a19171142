"""The commands besides those of leases, the program's own options, and the plug-in."""

from importlib import metadata

import pytest

from climate.client.commands import app, osc
from climate.client.commands.display import chart
from climate.client.commands.display.chart import Style
from climate.client.commands.options.times import Zone
from climate.client.models import Calendar
from climate.client.transport import convert
from climate.db import managers
from tests.client.conftest import Climate, run
from tests.conftest import MakeStory
from tests.support.loopback import served
from tests.support.outbox_rows import publish
from tests.support.service import Story

WINDOW = ("--start", "2030-01-15 14:00", "--end", "2030-01-15 17:00")
SINCE = ("--since", "2030-01-01", "--until", "2030-01-15")
DAY = ("--start", "2030-01-15 13:00", "--end", "2030-01-16 01:00")


def test_shows_what_is_free_and_finds_windows(climate: Climate) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "3")
    free = climate("availability", *DAY, "-f", "csv", "-c", "free").output.split()
    assert free == ['"free"', "4", "1", "4"]
    large = ("--host", "1,where=vcpus>=64")
    assert climate("availability", *DAY, *large, "-f", "json").json[0]["free"] == 1
    search = ("search", "--duration", "2h", "--end-by", "2030-01-16", "--limit", "1")
    found = climate(*search, "--host", "4")
    assert "| 2030-01-15 17:00:00 CET | 2030-01-15 19:00:00 CET |" in found.output
    nothing = climate(*search, "--host", "9", "-f", "json")
    assert nothing.json == []
    assert "no free window until 2030-01-16 00:00:00 CET" in nothing.errors


def test_names_the_windows_that_limits_forbid(
    climate: Climate, make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = make_story(limits__enabled=True, limits__project_hosts=3)
    with served(limited) as port:
        monkeypatch.setenv("OS_ENDPOINT", f"http://127.0.0.1:{port}")
        search = ("search", "--duration", "2h", "--end-by", "2030-01-16", "--limit", "1")
        found = climate(*search, "--host", "4", "-f", "json")
    assert found.json == []
    assert "no free window that your limits allow until 2030-01-16 00:00:00 CET" in found.errors
    forbids = "Your limits forbid 2030-01-15 13:00:00 CET to 2030-01-15 15:00:00 CET: "
    assert forbids in found.errors
    assert "3 hosts" in found.errors


def test_manages_resources(climate: Climate) -> None:
    made = climate("resource", "register", "sim-5", "--property", "rack=r2", "-f", "json").json
    assert made["properties"]["rack"] == "r2"
    listed = climate("resource", "list", "--where", "rack=r2", "-f", "value", "-c", "name")
    assert listed.output == "sim-5\n"
    changed = (
        "resource",
        "set",
        "sim-5",
        "--property",
        "hw:gpus=2",
        "--remove",
        "rack",
        "-f",
        "json",
    )
    properties = climate(*changed).json["properties"]
    assert (properties["hw:gpus"], "rack" in properties) == ("2", False)
    climate("resource", "set", "sim-5", "--property", "rack=r2")
    aside = ("resource", "set", "aside", "sim-5")
    assert climate(*aside, "--reason", "disk", "-f", "json").json["set_aside"] == "disk"
    assert climate("resource", "show", "sim-5", "-f", "json").json["state"] == "set_aside"
    assert climate(*aside, "--end", "-f", "json").json["set_aside"] is None
    assert "| rack " in climate("resource", "property", "list").output
    assert "min*, max*, hypervisor_properties" in climate("resource", "type", "list").output
    assert "can no longer be reserved" in climate("resource", "remove", "sim-5").errors
    assert climate("resource", "show", "sim-5").errors == "No resource is named sim-5.\n"


def test_shows_bookings_limits_readiness_and_history(climate: Climate, story: Story) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "4")
    (booking,) = climate("resource", "booking", "list", "sim-1", "-f", "json").json
    assert booking["lease_name"] == "mine"
    (row,) = climate("resource", "list", "--bookings", "--limit", "1", "-f", "json").json
    assert (row["now"], row["next"]["lease_name"]) == (None, "mine")
    limits = climate("limit", "list", "-f", "json").json
    assert {
        "scope": "project",
        "id": "admin",
        "name": "hosts",
        "used": 4.0,
        "limit": None,
    } in limits
    readiness = climate("readiness", "show", "mine", "-f", "json")
    assert readiness.json["state"] is None
    assert "do not prepare hosts" in readiness.errors
    assert climate("readiness", "summary", *SINCE, "-f", "json").json == []
    story.at(60)
    story.at(180)
    climate("lease", "delete", "mine")
    (past,) = climate("lease", "history", "-f", "json").json
    assert (past["name"], len(past["resources"])) == ("mine", 4)


def test_shows_operators_use_managers_and_overdue_events(climate: Climate, story: Story) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "1,where=id=1")
    hour = ("--start", "2030-01-15 14:00", "--end", "2030-01-15 16:00", "--period", "hour")
    use = climate("utilisation", "show", *hour, "-f", "json").json
    start = {"name": "physical:host", "capacity": 4, "occupied": 0.25}
    assert use[0] == {**start, "start": "2030-01-15T13:00:00Z"}
    assert use[1] == {**start, "start": "2030-01-15T14:00:00Z"}
    by_host = climate("utilisation", "show", *hour, "--property", "hypervisor_hostname")
    assert "| sim-1 |        1 | 2030-01-15 15:00:00 CET | 100.0% " in by_host.output
    assert "| sim-4 |        1 | 2030-01-15 15:00:00 CET | 0.0% " in by_host.output
    by_project = climate("utilisation", "show", *hour, "--by", "project", "-f", "json")
    assert [row["name"] for row in by_project.json] == ["admin", "admin"]
    story.clock.advance(2 * 3600)
    beat_at, name = story.clock.now(), "manager-1"
    story.runtime.database.write(lambda session: managers.beat(session, name, beat_at, {}))
    (manager,) = climate("manager", "list", "-f", "json").json
    assert (manager["id"], manager["alive"], manager["stalled"]) == (name, True, [])
    waiting = climate("manager", "list").errors
    assert "no manager has claimed: 3 before_start_lease, 1 start_lease." in waiting
    events = ("overdue", "event", "list")
    late = climate(*events, "-f", "json").json
    assert [each["late"] for each in late] == [7200.0, 4200.0, 3660.0, 3600.0]
    assert (late[3]["lease_name"], late[3]["type"]) == ("mine", "start_lease")
    one = climate(*events, "--limit", "1", "-f", "value", "-c", "type", "-c", "cause")
    assert one.output == "before_start_lease queued\n"


def test_manages_subscriptions_and_feeds(climate: Climate, story: Story) -> None:
    made = climate("subscription", "create", "https://example.org/hook", "-f", "json").json
    assert made["secret"].startswith("whsec_")
    id_ = made["id"]
    shown = climate("subscription", "update", id_, "--status", "suspended", "-f", "json").json
    assert (shown["status"], "secret" in shown) == ("suspended", False)
    assert "Nothing to change" in climate("subscription", "update", id_).errors
    assert climate("subscription", "dead", "letter", "list", id_, "-f", "json").json == []
    assert len(climate("subscription", "list", "-f", "json").json) == 1
    assert climate("subscription", "delete", id_).code == 0
    climate("lease", "create", "mine", *WINDOW, "--host", "1")
    feed = climate("feed", "create", "--lease", "mine", "-f", "json").json
    path = feed["url"].partition("/feeds/")[2]
    assert "SUMMARY:mine" in story.call("GET", f"/feeds/{path}").get_data(as_text=True)
    assert climate("feed", "list", "-f", "value", "-c", "id").output == f"{feed['id']}\n"
    assert climate("feed", "delete", feed["id"]).code == 0
    publish(story, "one", "two")
    assert len(climate("notification", "list", "--limit", "2", "-f", "json").json) == 2


def test_draws_a_calendar(climate: Climate, story: Story) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "1")
    body = story.asking(
        120, 300, reservations=[{"resource_type": "physical:host", "params": {"min": 3, "max": 3}}]
    )
    story.ok("POST", "/v2/leases", body, token="alice:lab")
    drawn = climate("calendar", *DAY, "--ascii", "--width", "54").output.splitlines()
    assert drawn[0] == "          |14:00  |16:00  |18:00  |20:00  |22:00"
    own = next(line for line in drawn if "A" in line[6:])
    assert own[6:] == "....AAAAAAAAAAAA................................"
    others = [line[6:] for line in drawn[1:5] if "#" in line]
    assert others == ["........############............................"] * 3
    assert drawn[5] == ". free  # taken by others  (times in CET)"
    assert drawn[6].startswith(
        "A  mine  2030-01-15 14:00:00 CET - 2030-01-15 17:00:00 CET  PENDING"
    )
    assert "\x1b" not in climate("calendar", *DAY).output
    assert "\x1b[30;42ma" in climate("calendar", *DAY, "--color", "always").output
    rows = climate("calendar", *DAY, "-f", "json").json
    assert [row["kind"] for row in rows].count("taken") == 3
    assert [row["lease_name"] for row in rows if row["kind"] == "lease"] == ["mine"]
    part = climate("calendar", *DAY, "--limit", "2")
    assert "Rows 1 to 2 of 4" in part.errors


def test_a_short_booking_shows_in_a_long_calendar() -> None:
    body = {
        "start": "2030-03-30T00:00:00Z",
        "end": "2030-04-02T00:00:00Z",
        "version": "1",
        "total": 2,
        "offset": 0,
        "leases": [],
        "groups": [{"name": "r1", "first": 0, "rows": 2, "free_now": 1}],
        "rows": [
            {
                "id": "1",
                "name": "a-host-with-a-very-long-name",
                "state": "ready",
                "x": [43200, 600, 0, 86400, 86400, 3, 172800, 86400, 6, 5],
            },
            {"id": "2", "name": "b", "state": "ready", "x": [0, 259200, 2]},
        ],
    }
    calendar = convert(body, Calendar)
    lines = list(chart.draw(calendar, Zone("Europe/Berlin"), Style(width=49)))
    assert lines[1:] == [
        "r1: 1 of 2 free now",
        "a-host-with-a-very-long~ ····▁···××××××××▅▅▅▅▅▅▅▅",  # noqa: RUF001 - signs of the chart
        "b                        ░░░░░░░░░░░░░░░░░░░░░░░░",
        "· free  ▒ taken by others  ░ cleaning  × not bookable  ▄ partly taken  (times in CET)",  # noqa: RUF001
    ]
    assert lines[0].split() == ["|Sun", "31", "|Mon", "01"]


def test_says_who_the_caller_is(climate: Climate, url: str) -> None:
    token = ("--os-auth-type", "admin_token", "--os-token", "alice:lab")
    found = climate(*token, "whoami", "-f", "json").json
    assert (found["user"]["id"], found["project"]["id"]) == ("alice", "lab")
    assert found["url"] == f"{url}/v2"
    incomplete = climate(*token[:3], "alice", "whoami")
    assert incomplete.errors.startswith("OS_TOKEN must be user:project")


def test_an_unknown_command_suggests_others_and_no_command_shows_the_help() -> None:
    answer = run("leese", "list")
    assert (answer.code, "lease list" in answer.output) == (2, True)
    answer = run()
    assert answer.code == 2
    assert "commands:" in answer.errors
    assert "  lease create" in answer.errors


@pytest.mark.parametrize(
    ("command", "objects"),
    [
        ("wait-list list", "waiting leases"),
        ("overdue event list", "overdue events"),
        ("feed list", "calendar feeds"),
        ("offer list", "open offers"),
        ("lease list", "leases"),
    ],
)
def test_an_empty_table_is_a_sentence(climate: Climate, command: str, objects: str) -> None:
    answer = climate(*command.split())
    assert (answer.code, answer.output, answer.errors) == (0, "", f"No {objects} found.\n")
    quiet, machine = climate("-q", *command.split()), climate(*command.split(), "-f", "json")
    assert (quiet.output, quiet.errors) == ("", "")
    assert (machine.json, machine.errors) == ([], "")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_a_command_shows_its_own_help(option: str) -> None:
    for arguments in ((), ("mine", "--duration", "2h", "--host", "1")):
        answer = run("lease", "create", *arguments, option)
        assert (answer.code, answer.errors) == (0, "")
        assert answer.output.startswith("usage: climate lease create [OPTIONS] NAME")
        assert "--dry-run" in answer.output
    assert "  lease create\n" in run("lease", option).output
    answer = run(option)
    assert (answer.code, answer.errors) == (0, "")
    assert answer.output.startswith("usage: climate [OPTIONS] COMMAND")


def test_prints_completion_for_the_shell() -> None:
    answer = run("complete")
    assert answer.code == 0
    assert "cmds_lease='create delete end extend history list show update wait'" in answer.output
    assert "complete -F _climate climate" in answer.output


def test_the_program_and_the_plug_in_have_the_same_commands() -> None:
    points = metadata.distribution("climate").entry_points.select(group=app.GROUP)
    assert {point.name.partition("_")[0] for point in points} == {osc.API_NAME}
    assert f"openstack.{osc.API_NAME}.v{osc.DEFAULT_API_VERSION}" == app.GROUP
    commands = {name for name, _ in app.Commands(app.GROUP)}
    assert commands == {point.name.partition("_")[2].replace("_", " ") for point in points}


@pytest.mark.parametrize("variable", ["Mars/Base", "../etc/passwd"])
def test_an_unusable_zone_in_the_environment_is_named(
    climate: Climate, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("CLIMATE_TIME_ZONE", variable)
    answer = climate("lease", "list")
    assert (answer.code, "CLIMATE_TIME_ZONE" in answer.errors) == (1, True)
