"""Simulated stacks, for demonstrations and tests.

The simulation evaluates only what it needs to count the contents of a template: parameters,
``str_replace``, groups and nested templates. Every action completes at once.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidInput
from climate.core.lease.model import Lease
from climate.core.matching.quoting import cut
from climate.plugins.base import Requester
from climate.plugins.instances.simulated import FLAVORS
from climate.plugins.networking.simulated import NETWORK
from climate.plugins.simulated_journal import Journal
from climate.plugins.stacks.cloud import Stack, tags
from climate.plugins.stacks.contents import Flavors, flatten
from climate.plugins.stacks.document import parse_template
from climate.plugins.stacks.schema import stored
from climate.plugins.stacks.template import Source

# By type of group: the properties with the number of members, and with their definition.
_GROUPS = {
    "OS::Heat::ResourceGroup": (("count",), "resource_def"),
    "OS::Heat::AutoScalingGroup": (("desired_capacity", "min_size"), "resource"),
}
_MAX_RESOURCES = 10_000
# The first moment of the simulation; each effect takes a second.
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# The errors of code that reads a template as if it were well-formed.
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_STATUS = {
    "create": "CREATE_COMPLETE",
    "update": "UPDATE_COMPLETE",
    "suspend": "SUSPEND_COMPLETE",
    "resume": "RESUME_COMPLETE",
}


class SimulatedStacks:
    """A StackCloud (driver for stacks) that computes its state from its journal."""

    knows_users = False

    def __init__(self, conf: ConfigOpts) -> None:
        self.journal = Journal(conf)

    def flavors(self, _requester: Requester) -> Flavors:
        return Flavors({flavor.name: flavor.id for flavor in FLAVORS.values()})

    def networks(self, _requester: Requester, names: Collection[str]) -> Mapping[str, str]:
        return {NETWORK: NETWORK} if NETWORK in names else {}

    def preview(self, _requester: Requester, source: Source) -> Sequence[Any]:
        try:
            room = iter(range(_MAX_RESOURCES))
            return list(_members(source.template, source.parameters, source, None, room))
        except _MALFORMED as error:
            raise InvalidInput(f"The template cannot be read: {cut(str(error))}") from None

    def source(self, _requester: Requester, stack_id: str) -> Source:
        for effect in reversed(self.journal.effects()):
            if effect.get("stack") == stack_id and "source" in effect:
                return Source(**json.loads(effect["source"]))
        raise InvalidInput(f"Stack {stack_id} could not be found")

    def current(self, stack: Stack) -> Source:
        return self.source(Requester(stack.project_id, ""), stack.id)

    def make_empty(self, requester: Requester, name: str, reservation_id: str) -> Stack:
        if present := self.find_marked(requester.project_id, reservation_id):
            return present
        if name in {stack.name for stack in self._of(requester.project_id)}:
            raise Conflict(
                f"The project already has a stack named {name}: choose another stack_name"
            )
        id_ = f"stack-{len(self.journal.effects())}"
        self._act(
            "create",
            id_,
            called=name,
            project=requester.project_id,
            tags=",".join(tags(reservation_id)),
        )
        return next(stack for stack in self.stacks() if stack.id == id_)

    def find(self, project_id: str, stack_id: str) -> Stack | None:
        return next((stack for stack in self._of(project_id) if stack.id == stack_id), None)

    def find_marked(self, project_id: str, reservation_id: str) -> Stack | None:
        stacks = self._of(project_id)
        return next((stack for stack in stacks if stack.reservation_id == reservation_id), None)

    def _of(self, project_id: str) -> list[Stack]:
        return [stack for stack in self.stacks() if stack.project_id == project_id]

    def update(self, _lease: Lease, stack: Stack, source: Source, tags: Sequence[str]) -> None:
        text = json.dumps(stored(source))
        preview = flatten(self.preview(Requester("", ""), source))
        properties = [resource["properties"] for resource in preview]
        flavors = sorted(str(each["flavor"]) for each in properties if "flavor" in each)
        self._act("update", stack.id, tags=",".join(tags), source=text, flavors=",".join(flavors))

    def resume(self, stack: Stack) -> None:
        self._act("resume", stack.id)

    def suspend(self, stack: Stack) -> None:
        self._act("suspend", stack.id)

    def delete(self, stack: Stack) -> None:
        if any(present.id == stack.id for present in self.stacks()):
            self._act("delete", stack.id)

    def marked(self) -> Sequence[Stack]:
        return [stack for stack in self.stacks() if stack.reservation_id]

    def stacks(self) -> list[Stack]:
        """Return the present stacks, computed from the journal."""
        stacks: dict[str, Stack] = {}
        for number, effect in enumerate(self.journal.effects()):
            name, _, noun = effect["effect"].partition("_")
            if noun != "stack":
                continue
            id_ = effect["stack"]
            if name == "delete":
                stacks.pop(id_, None)
                continue
            if name == "create":
                stacks[id_] = Stack(
                    id=id_, name=effect["called"], project_id=effect["project"], status=""
                )
            marks = effect["tags"].split(",") if effect.get("tags") else stacks[id_].tags
            stacks[id_] = replace(stacks[id_], status=_STATUS[name], tags=marks)
            if name == "update":
                updated_at = _EPOCH + timedelta(seconds=number)
                stacks[id_] = replace(stacks[id_], updated_at=updated_at)
        return list(stacks.values())

    def _act(self, effect: str, id_: str, **details: str) -> None:
        self.journal.act(f"{effect}_stack", stack=id_, **details)


def _members(
    template: Mapping[str, Any],
    parameters: Mapping[str, Any],
    source: Source,
    parent: str | None,
    room: Iterator[int],
) -> Iterator[Any]:
    """Yield the resources of a template, with a nested list for each group and nested template.

    ``parent`` is the name of the resource that the template defines, if any. ``parameters`` are the
    values of the template's parameters. ``room`` contains one item for each further resource that
    the stack may have. Raises ValueError if the stack has more resources than that.
    """
    defaults = {
        name: record.get("default") for name, record in (template.get("parameters") or {}).items()
    }
    values = {**defaults, **parameters}
    for name, resource in (template.get("resources") or {}).items():
        yield from _member((name, parent), resource, values, source, room)


def _member(
    called: tuple[str, str | None],
    resource: Mapping[str, Any],
    values: Mapping[str, Any],
    source: Source,
    room: Iterator[int],
) -> Iterator[Any]:
    name, parent = called
    kind, properties = resource["type"], _value(resource.get("properties") or {}, values)
    if not isinstance(kind, str) or not isinstance(properties, dict):
        raise TypeError(f"resource {name} has no type, or its properties are no object")
    if next(room, None) is None:
        raise ValueError(f"there are more than {_MAX_RESOURCES} resources")
    if kind in _GROUPS:
        sizes, inner = _GROUPS[kind]
        count = next(int(properties[size]) for size in sizes if properties.get(size) is not None)
        yield [
            list(_member((str(number), name), properties[inner], {}, source, room))
            for number in range(count)
        ]
    elif kind in source.files:
        yield list(_members(parse_template(source.files[kind]), properties, source, name, room))
    else:
        yield {
            "resource_type": kind,
            "resource_name": name,
            "parent_resource": parent,
            "properties": properties,
        }


def _value(value: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Evaluate an expression of a template; attributes of other resources become None.

    ``values`` are the values of the template's parameters.
    """
    if isinstance(value, list):
        return [_value(part, values) for part in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"get_param": str(name)}:
            return values[name]
        case {"get_attr": _} | {"get_resource": _}:
            return None
        case {"str_replace": args}:
            return _replaced(str(_value(args["template"], values)), args["params"], values)
    return {name: _value(part, values) for name, part in value.items()}


def _replaced(text: str, params: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return ``text`` with the longest name in ``params`` that it contains replaced.

    ``params`` maps each name to an expression of the template. The result of the expression
    replaces the name; other names in ``text`` stay. ``values`` are the values of the template's
    parameters, which expressions can use.
    """
    for name in sorted(params, key=len, reverse=True):
        if name in text:
            value = _value(params[name], values)
            return text.replace(name, "" if value is None else str(value))
    return text
