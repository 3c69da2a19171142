"""The file with the keys of sessions."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.fernet import Fernet, InvalidToken

from climate.api.session.keys import CreatedKeyFile, KeyFile, parse
from climate.config.registry import Misconfigured
from tests.conftest import MakeStory
from tests.support.browser import Browser

KEY = Fernet.generate_key().decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file with one key."""
    file = tmp_path / "session.keys"
    file.write_text(KEY)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no key"),
        ("# a comment\n\n", "has no key"),
        (f"{KEY}\n{KEY[:-8]}\n", "line 2"),
        ("\n" + "ä" * 44, "line 2"),
        ("secret", "line 1"),
    ],
    ids=["empty", "comment", "short", "not-ascii", "not-a-key"],
)
def test_an_error_names_the_line_and_not_the_key(text: str, message: str) -> None:
    with pytest.raises(Misconfigured, match=message) as caught:
        parse(text, "the file")
    assert KEY[:-8] not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_read_prevents_the_start(
    make_story: MakeStory, tmp_path: Path
) -> None:
    for content in (None, b"\xff\xfe", b"no key"):
        file = tmp_path / "keys"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(Misconfigured, match=str(file)):
            make_story(console__session_key_file=str(file))


def test_the_previous_keys_remain_while_the_file_is_damaged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = KeyFile(path)
    sealed = keys.fernet().encrypt(b"x")
    for damage in (lambda: path.write_text("damaged"), path.unlink):
        damage()
        assert keys.fernet().decrypt(sealed) == b"x"
    assert "the previous session keys remain in use" in caplog.text
    assert KEY not in caplog.text
    path.write_text(Fernet.generate_key().decode())
    with pytest.raises(InvalidToken):
        keys.fernet().decrypt(sealed)


def test_a_file_that_others_can_read_is_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    KeyFile(path).load()
    assert caplog.messages == []
    path.chmod(0o640)
    KeyFile(path).load()
    assert caplog.records[0].levelno == logging.WARNING
    assert "must have mode 600" in caplog.text


def test_processes_that_start_together_create_one_file(tmp_path: Path) -> None:
    path = tmp_path / "climate.sqlite.session-key"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: CreatedKeyFile(path).fernet(), range(8)))
    sealed = made[0].encrypt(b"x")
    assert [fernet.decrypt(sealed) for fernet in made] == [b"x"] * 8
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_service_on_sqlite_keeps_its_key_beside_the_database(
    make_story: MakeStory, tmp_path: Path
) -> None:
    first = Browser(make_story())
    file = tmp_path / "climate.sqlite.session-key"
    assert first.session()["signed_in"] is False
    assert not file.exists(), "nobody has signed in yet"
    first.sign_in()
    assert file.exists()
    second = Browser(make_story())
    second.cookie = first.cookie
    assert second.is_signed_in()
