"""Stacks in the cloud of made-up hosts: for demos and tests, never for use.

It reads of templates what it takes to count servers: parameters, ``str_replace``, groups and nested
templates. What it is told to do is done at once, unless ``broken`` says otherwise.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidInput
from climate.core.lease.model import Lease
from climate.plugins.base import Asker
from climate.plugins.instances.simulated import FLAVORS
from climate.plugins.networking.simulated import NETWORK
from climate.plugins.simulated_journal import Journal
from climate.plugins.stacks.cloud import Stack, tags
from climate.plugins.stacks.contents import Flavors
from climate.plugins.stacks.template import Source, parse

# The number of members, and what one is.
_GROUPS = {
    "OS::Heat::ResourceGroup": (("count",), "resource_def"),
    "OS::Heat::AutoScalingGroup": (("desired_capacity", "min_size"), "resource"),
}
_STATUS = {
    "create": "CREATE_COMPLETE",
    "update": "UPDATE_COMPLETE",
    "suspend": "SUSPEND_COMPLETE",
    "resume": "RESUME_COMPLETE",
}


class SimulatedStacks:
    """Stacks of which all but the reservation is made up (see StackCloud for the methods)."""

    knows_users = False

    def __init__(self, conf: ConfigOpts) -> None:
        """Share the settings, and so the journal, with the hosts' cloud."""
        self.world = Journal(conf)

    def flavors(self, _asker: Asker) -> Flavors:
        """Return those of made-up instances."""
        return Flavors({one.name: one.id for one in FLAVORS.values()})

    def networks(self, _asker: Asker, names: Collection[str]) -> Mapping[str, str]:
        """Return the only one."""
        return {NETWORK: NETWORK} if NETWORK in names else {}

    def preview(self, _asker: Asker, source: Source) -> Sequence[Any]:
        """Return what can be seen in the template."""
        try:
            return list(_members(source.template, source.parameters, source, None))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"The template cannot be read: {error}") from None

    def source(self, _asker: Asker, stack_id: str) -> Source:
        """Return what the stack was made of last."""
        for effect in reversed(self.world.effects()):
            if effect.get("stack") == stack_id and "source" in effect:
                return Source(**json.loads(effect["source"]))
        raise InvalidInput(f"Stack {stack_id} could not be found")

    def make_empty(self, asker: Asker, name: str, reservation_id: str) -> Stack:
        """Write down that there is one, unless it is so."""
        if present := self.find_marked(asker.project_id, reservation_id):
            return present
        if any((one.name, one.project_id) == (name, asker.project_id) for one in self.stacks()):
            raise Conflict(f"The project has a stack of the name {name} already")
        id_ = f"stack-{len(self.world.effects())}"
        self._act(
            "create",
            id_,
            called=name,
            project=asker.project_id,
            tags=",".join(tags(reservation_id)),
        )
        return next(one for one in self.stacks() if one.id == id_)

    def find(self, project_id: str, stack_id: str) -> Stack | None:
        """Return what the effects so far add up to."""
        there = (one for one in self.stacks() if one.project_id == project_id)
        return next((one for one in there if one.id == stack_id), None)

    def find_marked(self, project_id: str, reservation_id: str) -> Stack | None:
        """Return what the effects so far add up to."""
        there = (one for one in self.stacks() if one.project_id == project_id)
        return next((one for one in there if one.reservation_id == reservation_id), None)

    def update(self, _lease: Lease, stack: Stack, source: Source, tags: Sequence[str]) -> None:
        """Write down what it is made of."""
        text = json.dumps({name: getattr(source, name) for name in Source.__slots__})
        flavors = sorted(str(one) for one in _flavors(self.preview(Asker("", ""), source)))
        self._act("update", stack.id, tags=",".join(tags), source=text, flavors=",".join(flavors))

    def resume(self, stack: Stack) -> None:
        """Write down that it runs."""
        self._act("resume", stack.id)

    def suspend(self, stack: Stack) -> None:
        """Write down that it is suspended."""
        self._act("suspend", stack.id)

    def delete(self, stack: Stack) -> None:
        """Write down that it is gone, unless it is so."""
        if any(one.id == stack.id for one in self.stacks()):
            self._act("delete", stack.id)

    def marked(self) -> Sequence[Stack]:
        """Return those of reservations."""
        return [one for one in self.stacks() if one.reservation_id]

    def stacks(self) -> list[Stack]:
        """Return all there are."""
        found: dict[str, Stack] = {}
        for effect in self.world.effects():
            name, _, what = effect["effect"].partition("_")
            if what != "stack":
                continue
            id_ = effect["stack"]
            if name == "delete":
                found.pop(id_, None)
                continue
            if name == "create":
                found[id_] = Stack(
                    id=id_, name=effect["called"], project_id=effect["project"], status=""
                )
            marks = effect["tags"].split(",") if effect.get("tags") else found[id_].tags
            found[id_] = replace(found[id_], status=_STATUS[name], tags=marks)
        return list(found.values())

    def _act(self, effect: str, id_: str, **details: str) -> None:
        self.world.act(f"{effect}_stack", stack=id_, **details)


def _members(
    template: Mapping[str, Any], given: Mapping[str, Any], source: Source, parent: str | None
) -> Iterator[Any]:
    """Yield the resources of a template, those of groups and nested templates in lists."""
    defaults = {
        name: one.get("default") for name, one in (template.get("parameters") or {}).items()
    }
    values = {**defaults, **given}
    for name, one in (template.get("resources") or {}).items():
        yield from _member(name, one, values, source, parent)


def _member(
    name: str, one: Mapping[str, Any], values: Mapping[str, Any], source: Source, parent: str | None
) -> Iterator[Any]:
    kind, properties = one["type"], _value(one.get("properties") or {}, values)
    if kind in _GROUPS:
        sizes, inner = _GROUPS[kind]
        count = next(int(properties[size]) for size in sizes if properties.get(size) is not None)
        yield [
            list(_member(str(number), properties[inner], {}, source, name))
            for number in range(count)
        ]
    elif kind in source.files:
        yield list(_members(parse(source.files[kind]), properties, source, name))
    else:
        yield {
            "resource_type": kind,
            "resource_name": name,
            "parent_resource": parent,
            "properties": properties,
        }


def _value(found: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Return what an expression comes to; what other resources will be is not known yet."""
    if isinstance(found, list):
        return [_value(one, values) for one in found]
    if not isinstance(found, dict):
        return found
    match found:
        case {"get_param": str(name)}:
            return values[name]
        case {"get_attr": _} | {"get_resource": _}:
            return None
        case {"str_replace": asked}:
            return _replaced(str(_value(asked["template"], values)), asked["params"], values)
    return {name: _value(one, values) for name, one in found.items()}


def _replaced(text: str, params: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return a text with one of the ``params``, the longest that is in it, replaced."""
    for name in sorted(params, key=len, reverse=True):
        if name in text:
            value = _value(params[name], values)
            return text.replace(name, "" if value is None else str(value))
    return text


def _flavors(found: Any) -> Iterator[Any]:  # noqa: ANN401 - lists of lists
    if isinstance(found, list):
        for one in found:
            yield from _flavors(one)
    elif "flavor" in found["properties"]:
        yield found["properties"]["flavor"]
