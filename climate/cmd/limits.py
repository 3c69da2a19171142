"""``climate-manage limits``: the limits that projects and users have of their own."""

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


def run(runtime: Runtime, given: argparse.Namespace) -> int:
    """Do what the command says; print what is in force then. Raises InvalidInput."""
    parties = [
        Party(scope, id_)
        for scope, id_ in ((Scope.PROJECT, given.project), (Scope.USER, given.user))
        if id_ is not None
    ]
    action = given.action or "show"
    if action != "show" and not parties:
        raise InvalidInput(f"limits {action} needs --project or --user")
    if action == "set" and not given.limit:
        raise InvalidInput("limits set needs --limit NAME=NUMBER")
    for party in parties:
        if action == "set":
            limits.set_own(runtime, party, dict(_assignment(text) for text in given.limit))
        elif action == "unset":
            limits.unset_own(runtime, party, given.limit)
    if not runtime.settings.limits.enabled:
        sys.stderr.write("limits are stored but not enforced: [limits] enabled is false\n")
    found = [limits.show_party(runtime, party) for party in parties]
    _print(found if parties else limits.show_all(runtime))
    return 0


def _assignment(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    try:
        return name, int(number)
    except ValueError:
        raise InvalidInput(f"--limit {text}: give it as NAME=NUMBER") from None


def _print(accounts: Iterable[Account]) -> None:
    """Print a line for each limit: whose, its name, the number, what is used, where it is from."""
    for account in accounts:
        used, limit = asdict(account.usage), asdict(account.limits)
        for name in NAMES:
            allowed = UNLIMITED if limit[name] is None else limit[name]
            use = f"{used[name]:g}" if name in used else "-"
            source = "own" if name in account.overrides else "default"
            print(account.scope.value, account.owner_id, name, allowed, use, source)
