"""Finding the filters and weighers that the configuration names."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts
from stevedore import NamedExtensionManager

from climate.config import Misconfigured
from climate.core.matching.selection import Selection

FILTERS = "climate.filters"
WEIGHERS = "climate.weighers"


def load_selection(conf: ConfigOpts) -> Selection:
    """Return what ``[manager] filters`` and ``weighers`` name; raises Misconfigured."""
    weighers = [_multiplied(text) for text in conf.manager.weighers]
    found = _load(WEIGHERS, "weighers", [name for name, _ in weighers])
    return Selection(
        filters=tuple(_load(FILTERS, "filters", conf.manager.filters)),
        weighers=tuple(
            (weigher, multiplier) for weigher, (_, multiplier) in zip(found, weighers, strict=True)
        ),
    )


def _multiplied(text: str) -> tuple[str, float]:
    """Read ``name`` or ``name=multiplier``."""
    name, given, number = (part.strip() for part in text.partition("="))
    try:
        multiplier = float(number) if given else 1.0
    except ValueError:
        multiplier = math.nan
    if not math.isfinite(multiplier):
        raise Misconfigured(f"[manager] weighers: {text!r} is not of the form NAME=NUMBER")
    return name, multiplier


def _load(namespace: str, option: str, names: Sequence[str]) -> list[Callable[..., Any]]:
    """Return what packages offer under these names, in their order."""

    def missing(absent: Iterable[str]) -> None:
        raise Misconfigured(
            f"[manager] {option}: {', '.join(sorted(absent))} is offered by no installed package"
            f" ({namespace})"
        )

    def broken(_manager: object, entry_point: Any, error: BaseException) -> None:  # noqa: ANN401
        raise Misconfigured(f"[manager] {option}: {entry_point.name}: {error}") from error

    if repeated := sorted({name for name in names if list(names).count(name) > 1}):
        raise Misconfigured(f"[manager] {option}: {', '.join(repeated)} is named twice")
    manager: NamedExtensionManager[Any] = NamedExtensionManager(
        namespace,
        names=list(names),
        name_order=True,
        on_missing_entrypoints_callback=missing,
        on_load_failure_callback=broken,
    )
    offered = manager.entry_points_names()
    for extension in manager:
        if offered.count(extension.name) > 1:
            raise Misconfigured(f"[manager] {option}: several packages offer {extension.name}")
        if not callable(extension.plugin):
            raise Misconfigured(f"[manager] {option}: {extension.name} is no function")
    return [extension.plugin for extension in manager]
