from tests.support.allocation_guard import drop, overlaps, taken  # noqa: F401
