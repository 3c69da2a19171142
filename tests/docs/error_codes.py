"""Writes ``docs/errors.md`` from the table of error codes: ``python -m tests.docs.error_codes``."""

from pathlib import Path

from climate.api.errors.catalogue import CODES

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
_INTRODUCTION = """\
# Errors

<!-- Written by: python -m tests.docs.error_codes -->

The code of an error is stable. Its message is for people and may change. In v2, the body has the
code, and `type` is the path of a page about it: `GET /v2/errors/<code>` answers without a token, in
HTML for browsers and in JSON for other clients. In v1, it is in the header `Climate-Error-Code`.
The bodies are described for [v1](api.md#errors) and [v2](api-v2.md#refusals).

A rejected request has changed nothing, except perhaps with `backend_unavailable`.
"""


def document() -> str:
    """Return the page: a section for each code, in the order of the status."""
    sections = (
        f"## `{code}`\n\nStatus {entry.status}. **{entry.title}.** {entry.meaning}\n\n"
        f"What to do: {entry.remedy}\n"
        for code, entry in sorted(CODES.items(), key=lambda item: item[1].status)
    )
    return "\n".join([_INTRODUCTION, *sections])


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
