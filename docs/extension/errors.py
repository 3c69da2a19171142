"""The reference of error codes, from the table behind ``GET /v2/errors/<code>``."""

from http import HTTPStatus

from climate.api.errors.catalogue import CODES
from docs.extension.markdown import section


def markdown() -> str:
    """Return a section for each code, in the order of their status."""
    ordered = sorted(CODES.items(), key=lambda item: (item[1].status, item[0]))
    return "\n".join(
        section(
            2,
            f"`{code}`",
            f"Status {entry.status} {HTTPStatus(entry.status).phrase}. **{entry.title}.**"
            f" {entry.meaning}",
            f"What to do: {entry.remedy}",
        )
        for code, entry in ordered
    )
