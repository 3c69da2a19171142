"""The table of Prometheus metrics that a process counts and measures itself."""

from climate.observability import metrics
from docs.extension.markdown import code, table


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
