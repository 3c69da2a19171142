"""Keys encrypt secrets at rest: the first encrypts, all decrypt."""

import pytest
from cryptography.fernet import Fernet

from climate.notifications.secret_encryption import UnreadableSecret, decrypt, encrypt

SECRET = "whsec_" + "A" * 88
OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    by_old, by_new = encrypt(SECRET, [OLD]), encrypt(SECRET, [NEW, OLD])
    assert len(by_old) <= 255  # the column
    assert SECRET not in by_old
    assert decrypt(by_old, [NEW, OLD]) == decrypt(by_new, [NEW]) == SECRET


def test_a_secret_in_clear_is_readable_with_and_without_keys() -> None:
    assert encrypt(SECRET, []) == SECRET
    assert decrypt(SECRET, []) == decrypt(SECRET, [OLD]) == SECRET


@pytest.mark.parametrize("keys", [[], [NEW]], ids=["none", "another"])
def test_without_its_key_a_secret_is_unreadable(keys: list[str]) -> None:
    with pytest.raises(UnreadableSecret, match="cannot decrypt"):
        decrypt(encrypt(SECRET, [OLD]), keys)
