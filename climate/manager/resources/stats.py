"""Use case: agents push stats, which are properties of resources, in large batches.

An agent numbers its pushes for a resource: the generation. climate ignores a push whose generation
is not newer than the stored one. So a push can be repeated, and a late one replaces nothing. Only
changed values are written, and no event or notification. Stats do not depend on bookings: a lease
keeps a resource whose stats no longer match its expression.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, InvalidInput
from climate.core.matching.property_type import ALLOWED_PROJECTS
from climate.db.resources import resources
from climate.db.resources.properties import stats
from climate.db.resources.properties.stats import Changes, Key, StoredValue, Target
from climate.manager.process.runtime import Runtime
from climate.manager.resources.registry import check_declared, check_not_native

# The digits of the highest id.
_LONGEST_ID = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """The new stats of a resource, which ``resource`` names by its name in the cloud or its id.

    ``resource_type`` is needed only if resources of several types have the name. ``stats`` are the
    values by property, in the form that climate stores; None removes a property.
    """

    resource: str
    resource_type: str | None
    generation: int
    stats: Mapping[str, str | None]


class Outcome(StrEnum):
    """What became of a push.

    APPLIED: the generation is stored, with the values that differ. UNCHANGED: climate has this
    generation already. STALE: climate has a newer one. UNKNOWN: there is no such resource.
    """

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a push, and the stored generation of the resource afterwards."""

    resource: str
    id: int | None
    outcome: Outcome
    generation: int | None


def push(runtime: Runtime, pushes: Sequence[Push]) -> list[Result]:
    """Store the stats of many resources in one transaction; return one result for each push.

    Raises InvalidInput, and stores nothing, if a push names a property that the cloud reports, if
    a name belongs to several resources, if two pushes concern the same resource, or if a capacity
    is no amount. ``place`` of the error begins with the number of the push.
    """
    return runtime.database.write(partial(_push, runtime, pushes, runtime.clock.now()))


def _push(
    runtime: Runtime, pushes: Sequence[Push], now: datetime, session: Session
) -> list[Result]:
    targets = _find_targets(runtime, session, pushes)
    ids = {target.id for target in targets if target is not None}
    generations = stats.lock_generations(session, ids)
    present = stats.find_values(session, ids, {name for each in pushes for name in each.stats})
    _check(runtime, session, pushes, targets, present)
    changes, results = Changes(), []
    defined: dict[str, set[str]] = {}
    for each, target in zip(pushes, targets, strict=True):
        stored = None if target is None else generations.get(target.id)
        outcome = Outcome.UNKNOWN if target is None else _outcome(each.generation, stored)
        if target is not None and outcome is Outcome.APPLIED:
            add_changes(changes, target.id, each, stored, present)
            given = {name for name, value in each.stats.items() if value is not None}
            defined.setdefault(target.type, set()).update(given)
            stored = each.generation
        id_ = None if target is None else target.id
        results.append(Result(resource=each.resource, id=id_, outcome=outcome, generation=stored))
    stats.store(session, changes, now)
    added = {name for _, name in changes.added}
    for type_, names in defined.items():
        resources.define(session, type_, sorted(names & added), now)
    return results


def _outcome(generation: int, stored: int | None) -> Outcome:
    if stored is None or generation > stored:
        return Outcome.APPLIED
    return Outcome.UNCHANGED if generation == stored else Outcome.STALE


def add_changes(
    changes: Changes,
    resource_id: int,
    given: Push,
    stored: int | None,
    present: Mapping[Key, StoredValue],
) -> None:
    """Add what a push changes to ``changes``. Pure, except for that.

    ``stored`` is the stored generation of the resource (None: it has none), ``present`` are the
    stored values.
    """
    (changes.first if stored is None else changes.newer)[resource_id] = given.generation
    for name, value in given.stats.items():
        key = resource_id, name
        if value is None:
            changes.removed.update({key} & present.keys())
        elif key not in present:
            changes.added[key] = value
        elif present[key].value != value:
            changes.changed[key] = value


def _find_targets(
    runtime: Runtime, session: Session, pushes: Sequence[Push]
) -> list[Target | None]:
    """Return the resource of each push; None if it does not exist. Raises InvalidInput."""
    names = {each.resource for each in pushes}
    numbers = {number for name in names if (number := _number(name)) is not None}
    by_name: dict[str, list[Target]] = {}
    by_id: dict[int, Target] = {}
    for target in stats.find_targets(session, sorted(names), sorted(numbers)):
        if target.type in runtime.plugins:
            by_name.setdefault(target.name, []).append(target)
            by_id[target.id] = target
    targets: list[Target | None] = []
    first: dict[int, int] = {}
    for index, each in enumerate(pushes):
        number = _number(each.resource)
        with_id = [] if number is None or number not in by_id else [by_id[number]]
        found = _only(index, each, by_name.get(each.resource, with_id))
        if found is not None and first.setdefault(found.id, index) != index:
            raise _at(index, f"{each.resource} is the resource of item {first[found.id]}, too")
        targets.append(found)
    return targets


def _only(index: int, given: Push, named: Sequence[Target]) -> Target | None:
    """Return the resource that a push names; raise InvalidInput if there are several."""
    matching = [each for each in named if given.resource_type in (None, each.type)]
    if len(matching) > 1:
        types = ", ".join(sorted(each.type for each in matching))
        raise _at(
            index,
            f"{len(matching)} resources are named {given.resource} ({types}): add the"
            " resource_type, or use the id",
        )
    return matching[0] if matching else None


def _number(text: str) -> int | None:
    is_id = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_ID
    return int(text) if is_id else None


def _check(
    runtime: Runtime,
    session: Session,
    pushes: Sequence[Push],
    targets: Sequence[Target | None],
    present: Mapping[Key, StoredValue],
) -> None:
    """Raise InvalidInput if stats would replace what the cloud reports, or an amount by a text."""
    for index, (each, target) in enumerate(zip(pushes, targets, strict=True)):
        if target is None:
            continue
        plugin = runtime.plugin(target.type)
        keys = ((target.id, name) for name in each.stats)
        native = [key[1] for key in keys if key in present and present[key].native]
        if ALLOWED_PROJECTS in each.stats:
            text = f"{ALLOWED_PROJECTS}: only PATCH of the resource changes it"
            raise _at(index, text, "stats")
        try:
            check_not_native(plugin, native, each.stats)
            if plugin.capacity_properties & each.stats.keys():
                resource = resources.get(session, target.type, target.id)
                check_declared(session, plugin, resource, each.stats)
        except InvalidInput as error:
            raise _at(index, error.message, "stats") from None


def _at(index: int, text: str, *place: str) -> ClimateError:
    error = InvalidInput(text)
    error.place = (str(index), *place)
    return error
