"""The command ``climate-manage encrypt-secrets``: encrypts the stored secrets of webhooks."""

import argparse

from oslo_config.cfg import ConfigOpts

from climate.cmd.database import explains_errors, open_checked_database
from climate.config.notifications import webhook_rules
from climate.config.registry import Misconfigured
from climate.manager.notifications import subscriptions


@explains_errors
def run(conf: ConfigOpts, _: argparse.Namespace) -> int:
    """Encrypt the stored secrets of webhooks; return the exit code.

    Print how many secrets are encrypted, and each subscription whose secret no key decrypts. The
    exit code is 2 if there is a secret that no key decrypts, else 0.
    """
    keys = webhook_rules(conf).secret_keys
    if not keys:
        raise Misconfigured("encrypt-secrets needs [notifications] webhook_secret_keys")
    with open_checked_database(conf) as database:
        count, unreadable = subscriptions.encrypt_secrets(database, keys)
    for id_ in unreadable:
        print(f"unreadable: subscription {id_}")
    print(f"encrypted: {count - len(unreadable)} of {count} secrets")
    return 2 if unreadable else 0
