"""Encryption of the stored secrets of webhooks, with keys of the operator.

A stored secret is either plain text, or ``fernet:`` followed by a Fernet token. climate can read
both forms, so the operator can introduce and change keys while the service runs.
https://github.com/fernet/spec
"""

from collections.abc import Sequence
from contextlib import suppress

from cryptography.fernet import Fernet, InvalidToken

_ENCRYPTED = "fernet:"


class UnreadableSecret(Exception):
    """Raised if none of the operator's keys decrypts a stored secret."""

    def __init__(self) -> None:
        super().__init__(
            "climate cannot decrypt the secret of this subscription: set the secret again, or ask"
            " your operator for the missing key ([notifications] webhook_secret_keys)"
        )


def encrypt(secret: str, keys: Sequence[str]) -> str:
    """Return ``secret`` as climate stores it: encrypted with the first key.

    If there are no keys, climate stores it as plain text.
    """
    if not keys:
        return secret
    return _ENCRYPTED + Fernet(keys[0]).encrypt(secret.encode()).decode()


def decrypt(stored: str, keys: Sequence[str]) -> str:
    """Return a stored secret as plain text; raise UnreadableSecret if no key decrypts it."""
    if not stored.startswith(_ENCRYPTED):
        return stored
    for key in keys:
        with suppress(InvalidToken):
            return Fernet(key).decrypt(stored.removeprefix(_ENCRYPTED)).decode()
    raise UnreadableSecret
