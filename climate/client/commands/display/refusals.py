"""Texts for errors: every invalid value of a request, and the alternatives of a refusal."""

import re
from collections.abc import Collection, Iterator

from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.errors import (
    Alternative,
    Blocker,
    ClientError,
    InvalidRequest,
    NotEnoughResources,
    Refused,
    Unauthenticated,
)

_PARAMETER = re.compile(r"((?:add_)?reservation)s/(\d+)/(?:params/)?(.+)")
# The sentence of a refusal ends where the parts begin that this module shows as lists.
_PARTS = (". Taken by ", ". What would fit now")


def text_of(error: ClientError, zone: Zone, options: Collection[str] = ()) -> str:
    """Return an error as text for people; ``options`` are those of the command for refusals."""
    if isinstance(error, NotEnoughResources):
        return "\n".join(_refusal(error, zone, options))
    if isinstance(error, InvalidRequest) and error.errors:
        return "\n".join(_invalid(error))
    if isinstance(error, Unauthenticated):
        return str(error).replace("X-Auth-Token", "OS_TOKEN")  # users do not know the header
    request_id = error.request_id if isinstance(error, Refused) and error.status >= 500 else None  # noqa: PLR2004
    return f"{error} (request id: {request_id})" if request_id else str(error)


def alternative_text(alternative: Alternative, zone: Zone) -> str:
    """Return what an alternative offers, such as ``later: from ... to ...``."""
    start, end = (times.show(at, zone) for at in (alternative.start, alternative.end))
    return {
        "fewer": f"fewer: {alternative.amount}",
        "other": "other: without the conditions on properties",
    }.get(alternative.differs, f"{alternative.differs}: from {start} to {end}")


def _refusal(error: NotEnoughResources, zone: Zone, options: Collection[str]) -> Iterator[str]:
    sentence = error.detail
    for part in _PARTS:
        sentence = sentence.partition(part)[0]
    yield f"{sentence.rstrip('.')}."
    if error.blocked_by:
        yield "In the way:"
        yield from (f"  {_blocker(blocker, zone)}" for blocker in error.blocked_by)
    if error.alternatives:
        yield "Alternatives:"
        for number, alternative in enumerate(error.alternatives, 1):
            yield f"  {number}  {alternative_text(alternative, zone)}"
        if "--take" in options:
            yield "To accept one, repeat the command with --take NUMBER."
    if error.can_wait and "--queue" in options:
        yield "To start as soon as enough is free, replace the times by --duration and --queue."


def _blocker(blocker: Blocker, zone: Zone) -> str:
    window = f"{times.show(blocker.start, zone)} to {times.show(blocker.end, zone)}"
    if blocker.lease_id is None:
        return f"{window}  a lease of another project"
    return f"{window}  your lease {blocker.lease_name} ({blocker.lease_id})"


def _invalid(error: InvalidRequest) -> Iterator[str]:
    lines = []
    for bad in error.errors:
        where = _place(bad.pointer or "") or bad.parameter or bad.header
        is_named = not where or bad.detail.startswith(f"{where}:")
        lines.append(bad.detail if is_named else f"{where}: {bad.detail}")
    if len(lines) == 1:
        yield lines[0]
        return
    yield "The request is invalid:"
    yield from (f"  {line}" for line in lines)


def _place(pointer: str) -> str:
    """Return a JSON pointer in the words of the command line."""
    where = pointer.removeprefix("#").strip("/")
    found = _PARAMETER.fullmatch(where)
    if found:
        return f"{found[1].replace('_', ' ')} {int(found[2]) + 1}, {found[3].replace('/', '.')}"
    return where.replace("/", ".")
