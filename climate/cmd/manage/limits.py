"""The command ``climate-manage limits``: shows, sets and unsets limits of projects and users."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.clock import SampledClock
from climate.cmd.database import explains_errors, open_checked_database
from climate.config import registry as config_registry
from climate.config.registry import Misconfigured
from climate.core.errors import InvalidInput
from climate.core.limits import NAMES, UNLIMITED, Rules, Scope
from climate.db.engine.clock import present
from climate.db.limits import Party
from climate.manager.admission.limits import limits
from climate.manager.admission.limits.limits import Account
from climate.manager.process.runtime import Store

_HEADER = ("scope", "id", "limit", "maximum", "used", "source")


@explains_errors
def run(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    """Show, set or unset limits, as the command line requests; then print the limits in effect.

    Raises Misconfigured, also if the arguments are invalid.
    """
    rules = config_registry.settings(conf).limits
    with open_checked_database(conf) as database:
        store = Store(database, SampledClock(partial(present, database)))
        try:
            accounts = _change_and_show(store, rules, arguments)
        except InvalidInput as error:
            raise Misconfigured(error.message) from error
    if not rules.enabled:
        enforced = "only project_leases" if rules.is_active else "none"
        _warn(f"[limits] enabled is false: these limits are stored, but {enforced} is enforced")
    if arguments.json:
        print(json.dumps([_record(account) for account in accounts], indent=2))
    elif accounts:
        _print_table([row for account in accounts for row in _rows(account, rules)])


def _change_and_show(
    store: Store, rules: Rules, arguments: argparse.Namespace
) -> Sequence[Account]:
    action = arguments.action or "show"
    parties = [
        Party(scope, id_)
        for scope, id_ in ((Scope.PROJECT, arguments.project), (Scope.USER, arguments.user))
        if id_ is not None
    ]
    if action != "show" and not parties:
        raise InvalidInput(f"limits {action} needs --project or --user")
    for party in parties:
        if not limits.is_known(store.database, party):
            _warn(
                f"{party.scope.value} {party.owner_id} is unknown, as it never had a lease:"
                " make sure that this is its id, not its name"
            )
        if action == "set":
            values = dict(_assignment(text) for text in arguments.limit)
            limits.set_own(store.database, party, values)
        elif action == "unset":
            limits.unset_own(store.database, party, arguments.limit)
    return limits.show(store, rules, parties)


def _assignment(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    try:
        return name, int(number)
    except ValueError:
        raise InvalidInput(f"--limit {text}: give it as NAME=NUMBER") from None


def _warn(text: str) -> None:
    sys.stderr.write(f"climate-manage: warning: {text}\n")


def _record(account: Account) -> dict[str, Any]:
    """Return the limits of a project or user as ``GET /v2/limits`` shows them, plus ``own``.

    ``own`` has the names of the limits that an operator set for this project or user, ``stored``
    their values, even if climate does not enforce them (-1: unlimited).
    """
    return {
        "scope": account.scope.value,
        "id": account.owner_id,
        "limits": asdict(account.limits),
        "used": asdict(account.usage),
        "own": sorted(account.overrides),
        "stored": dict(account.overrides),
    }


def _rows(account: Account, rules: Rules) -> Iterator[tuple[str, ...]]:
    used = asdict(account.usage)
    for name in NAMES:
        usage = f"{used[name]:g}" if name in used else "-"
        source = "own" if name in account.overrides else "default"
        maximum = _maximum(account, rules, name)
        yield account.scope.value, account.owner_id, name, maximum, usage, source


def _maximum(account: Account, rules: Rules, name: str) -> str:
    """Return the limit that applies; a stored one even if climate does not enforce it."""
    if name in account.overrides and not rules.enforces(account.scope, name):
        return f"{account.overrides[name]} (not enforced)"
    limit: int | None = getattr(account.limits, name)
    return str(UNLIMITED if limit is None else limit)


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    table = [tuple(word.upper() for word in _HEADER), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
