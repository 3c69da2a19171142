"""Reads deploy/compose.yaml as Compose does: merge keys, and variables with their defaults."""

import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
FILE = DEPLOY / "compose.yaml"
# The services that run programs of climate.
OURS = ("upgrade", "api", "manager-1", "manager-2", "provisioner")


def project() -> dict[str, Any]:
    """Return the content of the file, with the default of each variable."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", FILE.read_text(encoding="utf-8"))
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def services() -> dict[str, dict[str, Any]]:
    """Return all services by name."""
    found: dict[str, dict[str, Any]] = project()["services"]
    return found
