from tests.support.allocation_guard import bookings as taken  # noqa: F401
from tests.support.allocation_guard import drop, overlaps  # noqa: F401
