"""Default volume types: how volumes whose users name no type use an open reservation.

At the start of an open reservation its reserved type becomes the default type of the project, and
the end restores the former default type. If a project has several open reservations, the type of
the first one is the default, and its end hands the default over to another one.

climate stores the former default type in the reserved type before it changes the default, so a
manager that continues after a kill finds it. Each change runs under a lock per project. All
functions are idempotent.
"""

from collections.abc import Mapping, Sequence

from climate.plugins.base import Turn
from climate.plugins.volumes.cloud import NO_TYPE, ReservedType, VolumeCloud


def set_default(
    cloud: VolumeCloud, turn: Turn, reserved_type: ReservedType, project_id: str
) -> None:
    """Make a reserved type the project's default type, and store the former default type.

    If the type of another open reservation is the default, only store the former default type.
    """
    with turn(_lock(project_id)):
        default = cloud.default_types().get(project_id, NO_TYPE)
        types = _open_types(cloud.reserved_types())
        own, first = types.get(reserved_type.id), types.get(default)
        if own and first and default == own.id:
            return
        former = NO_TYPE if default == reserved_type.id else default
        former = str(first.former_default) if first else former
        if own is None or own.former_default != former:
            cloud.store_former_default(reserved_type, former)
        if first is None:
            cloud.set_default_type(project_id, reserved_type.id)


def restore_default(
    cloud: VolumeCloud, turn: Turn, reserved_type: ReservedType, project_id: str
) -> None:
    """End the use of a reserved type as the project's default type.

    Another open reservation of the project gets the default, otherwise the former default type.
    Afterwards the reserved type is not marked as open, so no other end hands the default to it.
    """
    with turn(_lock(project_id)):
        types = {each.id: each for each in cloud.reserved_types()}
        own = types.pop(reserved_type.id, reserved_type)
        if cloud.default_types().get(project_id) == own.id:
            former = own.former_default or NO_TYPE
            if heir := _heir(cloud, list(types.values()), project_id):
                cloud.store_former_default(heir, former)
                cloud.set_default_type(project_id, heir.id)
            else:
                cloud.set_default_type(project_id, former)
        if own.former_default is not None:
            cloud.store_former_default(own, None)


def is_default(
    defaults: Mapping[str, str], reserved_types: Sequence[ReservedType], project_id: str
) -> bool:
    """Return whether volumes without a type use an open reservation of the project. Pure.

    ``defaults`` maps ids of projects to ids of their default types.
    """
    return defaults.get(project_id) in _open_types(reserved_types)


def _open_types(types: Sequence[ReservedType]) -> dict[str, ReservedType]:
    """Return the types of running open reservations by id. Pure."""
    return {each.id: each for each in types if each.former_default is not None and not each.is_over}


def _heir(
    cloud: VolumeCloud, others: Sequence[ReservedType], project_id: str
) -> ReservedType | None:
    """Return the type of another open reservation of the project, if there is one."""
    candidates = sorted(_open_types(others).values(), key=lambda each: each.id)
    return next((each for each in candidates if project_id in cloud.users(each)), None)


def _lock(project_id: str) -> str:
    return f"default volume type {project_id}"
