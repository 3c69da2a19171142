"""Templates of mails and of the pages behind their links, and the addresses that they contain.

In templates with the ending ``.html``, Jinja escapes all values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from oslo_config.cfg import ConfigOpts

from climate.config.mail import public_url
from climate.core.notifications.mail import Purpose


@dataclass(frozen=True, slots=True)
class Site:
    """The addresses of the service for users.

    ``url`` is its public address without a slash at the end; None if the operator has set none.
    ``has_console`` states whether the service has the web console.
    """

    url: str | None = None
    has_console: bool = False

    @property
    def console_url(self) -> str | None:
        """The address of the web console; None if there is none."""
        return f"{self.url}/console" if self.url and self.has_console else None

    def lease_url(self, lease_id: str | None) -> str | None:
        """Return the address of a lease in the web console; None if there is none."""
        console_url = self.console_url
        return (
            f"{console_url}/leases/{quote(lease_id, safe='')}" if console_url and lease_id else None
        )

    def link_url(self, purpose: Purpose, link: str) -> str:
        """Return the address of a secret link; ``link`` is the last part of its path."""
        return f"{self.url}/email/{purpose}/{link}"


def site(conf: ConfigOpts) -> Site:
    """Return the addresses of the service, as configured."""
    return Site(public_url(conf), conf.console.enabled)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a template, such as ``notification.html``, filled with ``values``."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("climate.notifications", "templates"),
        autoescape=select_autoescape(["html"], default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
