"""The command ``climate-manage limits``: shows, sets and unsets limits of projects and users."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict

from climate.core.errors import InvalidInput
from climate.core.limits import NAMES, UNLIMITED, Scope
from climate.db.limits import Party
from climate.manager.admission import limits
from climate.manager.admission.limits import Account
from climate.manager.process.runtime import Runtime


def run(runtime: Runtime, arguments: argparse.Namespace) -> None:
    """Set or unset limits, if the command line requests it; then print the limits in effect.

    Raises InvalidInput if the command line is incomplete or a limit is invalid.
    """
    parties = [
        Party(scope, id_)
        for scope, id_ in ((Scope.PROJECT, arguments.project), (Scope.USER, arguments.user))
        if id_ is not None
    ]
    action = arguments.action or "show"
    if action != "show" and not parties:
        raise InvalidInput(f"limits {action} needs --project or --user")
    if action == "set" and not arguments.limit:
        raise InvalidInput("limits set needs --limit NAME=NUMBER")
    for party in parties:
        if action == "set":
            values = dict(_assignment(text) for text in arguments.limit)
            limits.set_own(runtime.database, party, values)
        elif action == "unset":
            limits.unset_own(runtime.database, party, arguments.limit)
    rules = runtime.settings.limits
    if not rules.enabled:
        enforced = "only leases of projects is" if rules.is_active else "none is"
        sys.stderr.write(f"limits are stored, {enforced} enforced: [limits] enabled is false\n")
    _print(limits.show(runtime.store, rules, parties))


def _assignment(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    try:
        return name, int(number)
    except ValueError:
        raise InvalidInput(f"--limit {text}: give it as NAME=NUMBER") from None


def _print(accounts: Iterable[Account]) -> None:
    for account in accounts:
        used, limit = asdict(account.usage), asdict(account.limits)
        for name in NAMES:
            maximum = UNLIMITED if limit[name] is None else limit[name]
            usage = f"{used[name]:g}" if name in used else "-"
            source = "own" if name in account.overrides else "default"
            print(account.scope.value, account.owner_id, name, maximum, usage, source)
