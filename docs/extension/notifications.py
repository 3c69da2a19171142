"""The reference of notifications: their types, and the members of their payloads."""

from climate.core.notifications.catalog import EVERYWHERE, MEMBERS, SHARED, TYPES
from docs.extension.markdown import code, section, table


def markdown() -> str:
    """Return a table of all types, and a table of all members of payloads."""
    types = table(
        ["Type", "Published when", "Members of its own"],
        ([code(type_.name), type_.when, ", ".join(map(code, type_.members))] for type_ in TYPES),
    )
    members = table(
        ["Member", "In", "Meaning"],
        ([code(name), _place(name), meaning] for name, meaning in MEMBERS.items()),
    )
    return "\n".join([section(2, "Types", types), section(2, "Members of payloads", members)])


def _place(member: str) -> str:
    """Return in which payloads a member is, in words."""
    if member in EVERYWHERE:
        return "all"
    subjects = [f"{subject}.*" for subject, members in SHARED.items() if member in members]
    types: list[str] = [
        type_.name
        for type_ in TYPES
        if member in type_.members and f"{type_.subject}.*" not in subjects
    ]
    if {type_.name for type_ in TYPES if type_.name.startswith("lease.event.")} - {
        "lease.event.before_end_lease.stop"
    } <= set(types):
        types = ["lease.event.*"]
    return ", ".join(map(code, [*subjects, *types]))
