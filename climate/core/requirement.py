"""What a reservation needs from admission, whatever its resource type."""

from dataclasses import dataclass

from climate.core.query import Query


@dataclass(frozen=True, slots=True)
class Requirement:
    """``minimum``..``maximum`` resources of a type that match ``query``, each taken whole."""

    resource_type: str
    minimum: int
    maximum: int
    query: Query
