"""/v2/subscriptions of the kind email: fields, limits and rights. No mail is sent here."""

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from climate.cmd import bootstrap
from climate.db.tables.notifications import ConfirmationRow, SubscriptionRow
from tests.conftest import MakeStory
from tests.support.receiver import SECRET
from tests.support.service import Story

PATH = "/v2/subscriptions"
OPTIONS: dict[str, Any] = {
    "api__public_url": "https://climate.example",
    "email__server": "mail.example",
    "email__sender": "climate@lab.example",
}
ALICE = "alice:lab"


def mail_to(address: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "email", "address": address, **fields}


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return make_story(**OPTIONS)


def test_a_subscription_by_email_is_created_shown_and_changed(story: Story) -> None:
    body = mail_to("o'neil+x@example.org", frequency="daily", time_zone="Europe/Berlin")
    made = story.ok("POST", PATH, body, token=ALICE)
    assert (made["kind"], made["address"]) == ("email", "o'neil+x@example.org")
    assert made["url"] == "mailto:o'neil+x@example.org"
    assert (made["frequency"], made["time_zone"]) == ("daily", "Europe/Berlin")
    assert (made["status"], made["confirmed_at"]) == ("active", None)
    path = f"{PATH}/{made['id']}"
    change = {"frequency": "hourly", "event_types": ["lease.event.*"]}
    changed = story.ok("PATCH", path, change, token=ALICE)
    assert changed == {**made, **change, "updated_at": changed["updated_at"]}
    story.problem(404, "GET", path, token="bob:office")
    assert story.ok("GET", "/v2/me")["features"]["email"] is True


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"kind": "email"}, "#/address"),
        ({"kind": "post"}, "#/kind"),
        (mail_to("nobody"), "#/address"),
        (mail_to("a@example.org, b@example.org"), "#/address"),
        (mail_to("a@example.org\r\nBcc: b@example.org"), "#/address"),
        (mail_to("a@example.org", url="https://example.org"), "#/url"),
        (mail_to("a@example.org", secret=SECRET), "#/secret"),
        (mail_to("a@example.org", format="slack"), "#/format"),
        (mail_to("a@example.org", after=0), "#/after"),
        (mail_to("a@example.org", frequency="weekly"), "#/frequency"),
        (mail_to("a@example.org", time_zone="Nowhere"), "#/time_zone"),
        ({"url": "https://example.org", "secret": SECRET, "address": "a@b.org"}, "#/address"),
        ({"url": "https://example.org", "secret": SECRET, "frequency": "daily"}, "#/frequency"),
        ({"url": "https://example.org", "secret": SECRET, "format": "irc"}, "#/format"),
    ],
)
def test_rejects_fields_that_are_wrong_or_of_the_other_kind(
    story: Story, body: dict[str, Any], pointer: str
) -> None:
    problem = story.problem(400, "POST", PATH, body)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert story.ok("GET", PATH)["subscriptions"] == []


def test_a_change_has_only_fields_of_its_kind(story: Story) -> None:
    made = story.ok("POST", PATH, mail_to("a@example.org"))
    for change in ({"secret": SECRET}, {"url": "https://example.org"}, {"format": "slack"}):
        [name] = change
        problem = story.problem(400, "PATCH", f"{PATH}/{made['id']}", change)
        assert problem["errors"][0]["pointer"] == f"#/{name}"
    hook = story.ok("POST", PATH, {"url": "https://example.org", "secret": SECRET})
    story.problem(400, "PATCH", f"{PATH}/{hook['id']}", {"address": "a@example.org"})


def test_without_a_mail_server_there_is_no_email(make_story: MakeStory) -> None:
    story = make_story()
    problem = story.problem(400, "POST", PATH, mail_to("a@example.org"))
    assert "[email] server" in problem["detail"]
    assert story.ok("GET", "/v2/me")["features"]["email"] is False


def test_webhooks_and_email_have_limits_of_their_own(make_story: MakeStory) -> None:
    limits = {"email__subscriptions_per_project": 2, "notifications__subscriptions_per_project": 1}
    story = make_story(**OPTIONS, **limits)
    hook = {"url": "https://example.org", "secret": SECRET}
    for body in (mail_to("a@example.org"), hook, mail_to("b@example.org")):
        story.ok("POST", PATH, body, token=ALICE)
    for body in (mail_to("c@example.org"), hook):
        assert story.problem(403, "POST", PATH, body, token=ALICE)["code"] == "limit_exceeded"


def test_concurrent_requests_do_not_exceed_the_confirmations_of_an_address(
    make_story_everywhere: MakeStory,
) -> None:
    story = make_story_everywhere(**OPTIONS, email__confirmations_per_address=2)
    answers: list[int] = []

    def create(number: int) -> None:
        body = mail_to(f"Al+{number}@example.org")
        answer = story.call("POST", PATH, body, token=f"user:project-{number}")
        answers.append(answer.status_code)

    clients = [threading.Thread(target=create, args=[number]) for number in range(6)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert sorted(answers) == [201] * 2 + [429] * 4
    made = story.ok("GET", f"{PATH}?all_projects=true")["subscriptions"]
    assert len(made) == 2, "a rejected request leaves no subscription"
    for item in made:  # which does not give the confirmations back
        assert story.call("DELETE", f"{PATH}/{item['id']}").status_code == 204
    problem = story.problem(429, "POST", PATH, mail_to("al@example.org"))
    assert problem["code"] == "too_many_confirmations"
    story.clock.advance(3600)
    story.ok("POST", PATH, mail_to("al@example.org"))
    story.clock.advance(3601)
    story.dispatcher.upkeep.tidy()
    with story.runtime.database.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(ConfirmationRow)) == 0


def test_a_project_requests_a_limited_number_of_confirmations(make_story: MakeStory) -> None:
    story = make_story(**OPTIONS, email__confirmations_per_project=3)
    for number in range(3):
        made = story.ok("POST", PATH, mail_to(f"user{number}@example.org"), token=ALICE)
        path = f"{PATH}/{made['id']}"
        story.call("DELETE", path, token=ALICE)
    problem = story.problem(429, "POST", PATH, mail_to("other@example.org"), token=ALICE)
    assert "for project lab" in problem["detail"]
    story.ok("POST", PATH, mail_to("other@example.org"), token="bob:office")


def test_the_operator_restricts_who_sends_mail_and_to_whom(make_story: MakeStory) -> None:
    story = make_story(**OPTIONS, email__domains=["lab.example"])
    story.ok("POST", PATH, mail_to("a@lab.example"))
    problem = story.problem(400, "POST", PATH, mail_to("a@example.org"))
    assert "lab.example" in problem["detail"]


def test_only_a_caller_who_may_send_mail_requests_a_confirmation(
    make_story: MakeStory, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"climate:subscriptions:post_email": "role:mailer"\n', encoding="utf-8")
    story = make_story(**OPTIONS)
    story.conf.set_override("policy_file", str(policy), group="oslo_policy")
    story.http = bootstrap.make_api(story.conf, story.runtime).test_client()
    story.problem(403, "POST", PATH, mail_to("a@example.org"), token="bob:lab:member")
    made = story.ok("POST", PATH, mail_to("a@example.org"), token="alice:lab:member,mailer")
    path = f"{PATH}/{made['id']}"
    for change in ({"address": "b@example.org"}, {"status": "active"}):
        story.problem(403, "PATCH", path, change, token="bob:lab:member")
    story.ok("PATCH", path, {"status": "suspended"}, token="bob:lab:member")


def test_the_secret_of_the_links_is_stored_encrypted(make_story: MakeStory) -> None:
    key = Fernet.generate_key().decode()
    story = make_story(**OPTIONS, notifications__webhook_secret_keys=[key])
    story.ok("POST", PATH, mail_to("a@example.org"))
    with story.runtime.database.read() as session:
        [stored] = session.scalars(sa.select(SubscriptionRow.secret))
    assert stored.startswith("fernet:")
