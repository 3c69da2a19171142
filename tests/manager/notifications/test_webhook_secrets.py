"""The secrets of webhooks are encrypted at rest, and keys can be rotated."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from climate.cmd import main
from climate.db.tables.notifications import SubscriptionRow
from climate.manager.notifications.subscription_delivery import SubscriptionDelivery
from climate.notifications import webhook_sender
from tests.conftest import MakeStory
from tests.support.outbox_rows import publish
from tests.support.process import write_config
from tests.support.receiver import SECRET, receiving
from tests.support.service import Story

PATH = "/v2/subscriptions"
LOOPBACK: dict[str, Any] = {
    "notifications__webhook_networks": ["127.0.0.0/8"],
    "notifications__webhook_http": True,
}
OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))


def deliver(story: Story) -> None:
    publish(story, "lease.create")
    poster = webhook_sender.for_config(story.conf, story.runtime.settings.webhooks)
    SubscriptionDelivery(story.runtime, poster, "manager").run_due()


def stored(story: Story) -> list[str]:
    with story.runtime.database.read() as session:
        return list(session.scalars(sa.select(SubscriptionRow.secret)))


def encrypt_secrets(story: Story, folder: Path, keys: list[str]) -> int:
    path = write_config(
        folder / "climate.conf",
        database__connection=story.runtime.database.engine.url.render_as_string(
            hide_password=False
        ),
        notifications__webhook_secret_keys=",".join(keys),
    )
    return main.manage(["encrypt-secrets", "--config-file", str(path)])


def test_deliveries_are_signed_while_keys_are_introduced_and_rotated(
    make_story_everywhere: MakeStory, tmp_path: Path
) -> None:
    plain = make_story_everywhere(**LOOPBACK)
    with receiving() as receiver:
        path = f"{PATH}/{plain.ok('POST', PATH, {'url': receiver.url, 'secret': SECRET})['id']}"
        assert stored(plain) == [SECRET]
        for keys in ([OLD], [NEW, OLD], [NEW]):
            story = make_story_everywhere(**LOOPBACK, notifications__webhook_secret_keys=keys)
            deliver(story)
            assert encrypt_secrets(plain, tmp_path, keys) == 0
            assert SECRET not in stored(story)
            deliver(story)
        story.ok("PATCH", path, {"secret": SECRET})
        assert SECRET not in stored(story)
        deliver(story)
    assert [got.is_signed for got in receiver.got] == [True] * 7


def test_a_secret_that_no_key_decrypts_fails_only_its_own_deliveries(
    make_story: MakeStory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiving() as receiver:
        body = {"url": receiver.url, "secret": SECRET}
        old = make_story(**LOOPBACK, notifications__webhook_secret_keys=[OLD])
        lost = old.ok("POST", PATH, body)
        story = make_story(**LOOPBACK, notifications__webhook_secret_keys=[NEW])
        story.ok("POST", PATH, body)
        deliver(story)
        assert [got.is_signed for got in receiver.got] == [True]
        assert "cannot decrypt the secret" in story.ok("GET", f"{PATH}/{lost['id']}")["reason"]
        assert encrypt_secrets(story, tmp_path, [NEW]) == 2
        assert f"unreadable: subscription {lost['id']}" in capsys.readouterr().out
        story.ok("PATCH", f"{PATH}/{lost['id']}", {"secret": SECRET})
        deliver(story)
    assert [got.is_signed for got in receiver.got] == [True] * 4
