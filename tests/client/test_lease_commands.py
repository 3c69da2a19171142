"""The commands of leases against a service: what users type, and what they see."""

import pytest

from tests.client.conftest import Climate, run
from tests.support.service import Story
from tests.support.waiting import rules

START, END = "2030-01-15T13:00:00Z", "2030-01-15T14:00:00Z"
WINDOW = ("--start", "2030-01-15 14:00", "--end", "2030-01-15 15:00")


def test_scripts_create_a_lease_and_read_json(climate: Climate, story: Story) -> None:
    made = climate("lease", "create", "mine", *WINDOW, "--host", "min=1,max=2", "-f", "json").json
    assert (made["name"], made["status"], made["start"], made["end"]) == (
        "mine",
        "PENDING",
        START,
        END,
    )
    assert made["reservations"][0]["params"]["max"] == 2
    assert len(made["resources"]) == 2
    assert story.lease(made["id"])["name"] == "mine"


def test_says_how_it_understood_times_unless_they_have_a_zone(climate: Climate) -> None:
    answer = climate("lease", "create", "mine", *WINDOW, "--host", "1")
    assert answer.errors.splitlines() == [
        "start: Tue 2030-01-15 14:00:00 CET (UTC+01:00)",
        "end: Tue 2030-01-15 15:00:00 CET (UTC+01:00)",
    ]
    assert "| start        | 2030-01-15 14:00:00 CET" in answer.output
    exact = ("--start", "2030-01-15T14:00+00:00", "--duration", "1h", "--host", "1")
    answer = climate("lease", "create", "mine", *exact, "--time-zone", "Asia/Tokyo")
    assert answer.errors == ""
    assert "2030-01-15 23:00:00 JST" in answer.output
    assert climate("-q", "lease", "create", "mine", *WINDOW, "--host", "1").errors == ""


def test_a_refusal_numbers_its_alternatives_and_take_accepts_one(climate: Climate) -> None:
    climate("lease", "create", "first", *WINDOW, "--host", "2")
    asked = ("lease", "create", "second", *WINDOW, "--host", "4", "-f", "json")
    refused = climate(*asked)
    assert (refused.code, refused.output) == (1, "")
    lines = refused.errors.splitlines()[2:]
    assert lines[0].startswith("Not enough hosts available: at least 4 requested, 4 match")
    assert lines[2].startswith(
        "  2030-01-15 14:00:00 CET to 2030-01-15 15:00:00 CET  your lease first"
    )
    assert lines[4:] == [
        "  1  later: from 2030-01-15 15:00:00 CET to 2030-01-15 16:00:00 CET",
        "  2  fewer: 2",
        "To accept one, repeat the command with --take NUMBER.",
        "To start as soon as enough is free, replace the times by --duration and --queue.",
    ]
    taken = climate(*asked, "--take", "2")
    assert taken.json["reservations"][0]["params"]["min"] == 2
    assert taken.errors.endswith("The request was refused; taken: fewer: 2\n")
    later = climate(*asked, "--take", "1").json
    assert (later["start"], later["end"]) == (END, "2030-01-15T15:00:00Z")
    assert "There is no alternative 9; there are: 1 to 1." in climate(*asked, "--take", "9").errors


def test_holds_resources_or_an_alternative_and_accepts_the_offer(climate: Climate) -> None:
    asked = ("offer", "create", "first", *WINDOW, "--host", "4", "-f", "json")
    answer = climate(*asked, "--hold", "2m")
    offer = answer.json
    assert (offer["expires_at"], offer["start"]) == ("2030-01-15T12:02:00Z", START)
    assert answer.errors.endswith(f"To have it as a lease: climate offer accept {offer['id']}\n")
    refused = climate(*asked)
    assert "  1  later: from 2030-01-15 15:00:00 CET" in refused.errors
    held = climate(*asked, "--take", "1").json
    assert (held["start"], held["expires_at"]) == (END, "2030-01-15T12:05:00Z")
    (row, _) = climate("offer", "list", "-f", "json").json
    assert (row["id"], row["reservations"]) == (offer["id"], ["4 physical:host"])
    lease = climate("offer", "accept", offer["id"], "--name", "mine", "-f", "json").json
    assert (lease["id"], lease["name"], lease["status"]) == (offer["id"], "mine", "PENDING")
    assert "There is no open offer" in climate("offer", "show", offer["id"]).errors
    assert climate("offer", "show", held["id"], "-f", "json").json == held
    deleted = climate("offer", "delete", held["id"])
    assert (deleted.code, deleted.errors) == (0, f"Offer {held['id']} is deleted.\n")
    assert climate("offer", "list", "-f", "json").json == []


def test_waits_for_capacity_and_shows_the_place_in_the_wait_list(
    climate: Climate, story: Story
) -> None:
    rules(story, promises=1)
    hours = ("--duration", "1h", "-f", "json")
    climate("lease", "create", "first", "--host", "4", *hours)
    refused = climate("lease", "create", "second", "--host", "4", *hours)
    hint = "To start as soon as enough is free, replace the times by --duration and --queue.\n"
    assert refused.errors.endswith(hint)
    second = climate("lease", "create", "second", "--host", "4", "--queue", *hours).json
    assert (second["status"], second["waiting"]["promised_start"]) == ("PENDING", START)
    third = climate("lease", "create", "third", "--host", "4", "--queue", *hours).json
    assert (third["status"], third["waiting"]["position"]) == ("WAITING", 2)
    until = ("--queue-until", "2030-01-16 09:00", "--priority", "3")
    changed = climate("lease", "update", "third", *until, "-f", "json").json
    assert (changed["waiting"]["until"], changed["waiting"]["priority"]) == (
        "2030-01-16T08:00:00Z",
        3,
    )
    mixed = climate("lease", "update", "third", "--priority", "1", "--name", "other")
    assert "go with no other change" in mixed.errors
    entries = climate("wait-list", "list", "--type", "physical:host", "-f", "json").json
    assert [(each["lease_name"], each["position"]) for each in entries] == [
        ("third", 1),
        ("second", 2),
    ]
    assert "| 4 physical:host | 1 h" in climate("wait-list", "list").output
    listed = climate("lease", "list", "--status", "waiting").output
    assert "position 1" in listed


def test_a_dry_run_reserves_nothing(climate: Climate, story: Story) -> None:
    asked = ("lease", "create", "mine", *WINDOW, "--dry-run", "-f", "json")
    found = climate(*asked, "--host", "3").json
    assert found["admitted"] is True
    assert found["reservations"][0]["free"] == 4
    assert story.ok("GET", "/v2/leases")["leases"] == []
    assert "Not enough hosts" in climate(*asked, "--host", "5").errors


def test_a_lease_moves_to_its_earliest_window(climate: Climate) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "1")
    asked = ("lease", "update", "mine", "--start", "asap", "-f", "json")
    too_early = climate(*asked, "--end-by", "2030-01-15T12:30:00Z")
    assert too_early.code == 1
    assert climate(*asked).json["start"] == "2030-01-15T12:00:00Z"


def test_gives_back_and_adds_hosts_by_name(climate: Climate, story: Story) -> None:
    created = climate("lease", "create", "mine", "--duration", "2h", "--host", "3", "-f", "json")
    story.run()
    id_ = created.json["reservations"][0]["id"]
    held = story.ok("GET", f"/v2/leases/{created.json['id']}/resources")["resources"]
    first, second, _ = (item["name"] for item in held)
    given = ("--give-back", first, "--give-back", f"{id_}:{second}", "--set", "min=1")
    changed = climate("lease", "update", "mine", *given, "-f", "json").json
    assert changed["reservations"][0]["params"]["max"] == 1
    assert "name the reservation" in climate("lease", "update", "mine", "--give-back", "x").errors
    story.run()
    grown = climate(
        "lease", "update", "mine", "--add-host", f"{id_}:{first},{second}", "-f", "json"
    )
    assert grown.json["reservations"][0]["params"]["max"] == 3


def test_changes_extends_and_ends_a_lease_by_its_name(climate: Climate, story: Story) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "1")
    changed = climate("lease", "update", "mine", "--set", "max=2", "--name", "ours", "-f", "json")
    assert changed.json["reservations"][0]["params"]["max"] == 2
    added = climate("lease", "update", "ours", "--host", "1", "-f", "json").json
    reservation = added["reservations"][0]["id"]
    assert "name the reservation" in climate("lease", "update", "ours", "--set", "max=3").errors
    removed = ("lease", "update", "ours", "--remove", reservation, "-f", "json")
    assert len(climate(*removed).json["reservations"]) == 1
    extended = climate("lease", "extend", "ours", "--by", "90m", "-f", "json").json
    assert extended["end"] == "2030-01-15T15:30:00Z"
    shorter = climate("lease", "extend", "ours", "--until", "2030-01-15 14:30")
    assert "ends at 2030-01-15 16:30:00 CET already" in shorter.errors
    story.at(70)
    assert climate("lease", "end", "ours", "-f", "json").json["status"] == "ACTIVE"
    story.run()
    ended = climate("lease", "wait", "ours", "--for", "ended", "-f", "json")
    assert (ended.json["status"], ended.errors) == ("TERMINATED", "TERMINATED\n")


def test_deletes_nothing_if_one_of_the_names_is_wrong(climate: Climate, story: Story) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "1")
    wrong = climate("lease", "delete", "mine", "yours")
    assert (wrong.code, wrong.errors) == (1, "No lease is named yours.\n")
    assert len(story.ok("GET", "/v2/leases")["leases"]) == 1
    assert "is deleted" in climate("lease", "delete", "mine").errors
    assert story.ok("GET", "/v2/leases")["leases"] == []


def test_a_name_of_several_leases_must_be_made_clear(climate: Climate, story: Story) -> None:
    climate("lease", "create", "twin", *WINDOW, "--host", "1")
    climate("lease", "create", "twin", *WINDOW, "--host", "1")
    ids = [lease["id"] for lease in story.ok("GET", "/v2/leases")["leases"]]
    errors = climate("lease", "show", "twin").errors
    assert "2 leases are named twin" in errors
    assert all(id_ in errors for id_ in ids)
    climate("lease", "delete", ids[0])
    assert climate("lease", "show", "twin", "-f", "json").json["id"] == ids[1]


@pytest.mark.parametrize(
    ("formatter", "expected"),
    [
        ("csv", f'"mine","PENDING","{START}","1-2 physical:host"\n'),
        ("value", f"mine PENDING {START} 1-2 physical:host\n"),
        ("table", "| mine | PENDING | 2030-01-15 14:00:00 CET | 1-2 physical:host |\n"),
        ("yaml", "- name: mine\n  reservations:\n  - 1-2 physical:host\n"),
    ],
)
def test_lists_leases_in_each_format(climate: Climate, formatter: str, expected: str) -> None:
    climate("lease", "create", "mine", *WINDOW, "--host", "1-2")
    columns = ("-c", "name", "-c", "status", "-c", "start", "-c", "reservations")
    assert expected in climate("lease", "list", "-f", formatter, *columns).output


def test_shell_output_runs_no_command_of_a_name(climate: Climate) -> None:
    climate("lease", "create", '$(id) `id` "x\\', *WINDOW, "--host", "1")
    answer = climate("lease", "list", "-f", "json").json
    shown = climate("lease", "show", answer[0]["id"], "-f", "shell", "-c", "name")
    assert shown.output == 'name="\\$(id) \\`id\\` \\"x\\\\"\n'


def test_names_every_invalid_value_of_a_request(climate: Climate) -> None:
    answer = climate("lease", "create", "mine", *WINDOW, "--host", "1,nmae=x,may=2")
    assert sorted(answer.errors.splitlines()[2:]) == [
        "  reservation 1, may: This key is unknown. Did you mean max?",
        "  reservation 1, nmae: This key is unknown.",
        "The request is invalid:",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("create", "x", "--host", "1"), 2, "one of the arguments --end --duration is required"),
        (("create", "x", "--duration", "1h"), 1, "A lease needs a reservation"),
        (("create", "x", "--duration", "1", "--host", "1"), 2, "'1' is no duration"),
        (
            ("create", "x", "--start", "soon", "--duration", "1h", "--host", "1"),
            1,
            "--start: 'soon'",
        ),
        (("create", "x", "--start", "asap", "--duration", "1h", "--host", "1"), 1, "--end-by"),
        (("create", "x", "--duration", "1h", "--host", "foo"), 2, "'foo' is no number of hosts"),
        (("create", "x", "--duration", "1h", "--host", "2,foo"), 2, "'foo' has no key"),
        (("create", "x", "--duration", "1h", "--reservation", "{"), 2, "this is not JSON"),
        (("create", "x", "--duration", "1h", "--stack", "/none"), 2, "cannot read /none"),
        (("list", "--time-zone", "Mars"), 2, "'Mars' is no time zone"),
        (("update", "x"), 1, "No lease is named x."),
        (("list", "--sort", "colour"), 1, "sort: Must be one of"),
    ],
)
def test_says_what_is_wrong_without_a_traceback(
    climate: Climate, arguments: tuple[str, ...], code: int, message: str
) -> None:
    answer = climate("lease", *arguments)
    assert answer.code == code, answer.errors
    assert message in answer.errors
    assert "Traceback" not in answer.errors


def test_names_the_url_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_AUTH_TYPE", "none")
    monkeypatch.setenv("OS_ENDPOINT", "http://127.0.0.1:1/v1")
    answer = run("lease", "list")
    assert answer.code == 1
    assert answer.errors == "climate does not answer at http://127.0.0.1:1/v2: Connection refused\n"
