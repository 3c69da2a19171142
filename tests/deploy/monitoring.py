"""Reads the expressions of the alert rules and of the dashboard in deploy/monitoring."""

import json
from collections.abc import Iterator

import yaml

from tests.deploy.compose import DEPLOY

FOLDER = DEPLOY / "monitoring"
ALERTS = FOLDER / "alerts.yaml"
DASHBOARD = FOLDER / "dashboard.json"
# What Grafana puts in the place of its variables.
_VARIABLES = {"$__rate_interval": "5m", "$job": ".+"}


def alerts() -> dict[str, str]:
    """Return the expressions of all alerts by name."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def panels() -> Iterator[tuple[str, str]]:
    """Yield the title of a panel and an expression, for each expression of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in _VARIABLES.items():
                expression = expression.replace(variable, value)
            yield panel["title"], expression
