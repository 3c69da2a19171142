"""Tables of the Prometheus metrics that a process counts and measures itself, and of the alerts."""

from pathlib import Path

import yaml

from climate.observability import metrics
from docs.extension.markdown import code, table

_ALERTS = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"


def markdown() -> str:
    """Return a table of the metrics, with their labels."""
    labels = {
        definition[0]: definition[2] if len(definition) > 2 else []  # noqa: PLR2004 - as Counter takes them
        for definition in vars(metrics).values()
        if isinstance(definition, tuple) and str(definition[0]).startswith("climate_")
    }
    families = metrics.Metrics().registry.collect()
    rows = (
        [
            code(family.name + ("_total" if family.type == "counter" else "")),
            ", ".join(map(code, labels[family.name])),
            family.documentation,
        ]
        for family in families
    )
    return table(["Metric", "Labels", "Meaning"], rows)


def alerts_markdown() -> str:
    """Return a table of the alert rules in ``deploy/monitoring``."""
    groups = yaml.safe_load(_ALERTS.read_text(encoding="utf-8"))["groups"]
    rows = (
        [
            code(rule["alert"]),
            code(" ".join(rule["expr"].split())),
            rule["annotations"]["description"],
        ]
        for group in groups
        for rule in group["rules"]
    )
    return table(["Alert", "Condition", "Cause, or first step"], rows)
