"""One test for all cases of a rule: it reports every case that breaks the rule."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each_case(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run the test once per case, as subtests of a single test.

    Like ``pytest.mark.parametrize``, for rules whose cases need no fixture of their own: all cases
    share the fixtures of the test.
    """
    arguments, rows = names.replace(" ", "").split(","), list(cases)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(*self: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
            assert rows, "there is no case"
            for row in rows:
                values = [row] if len(arguments) == 1 else row
                case = dict(zip(arguments, values, strict=True))
                with subtests.test(msg=f"{values!r:.200}"):
                    test(*self, **fixtures, **case)

        fixtures = [item for name, item in signature.parameters.items() if name not in arguments]
        # Fixtures are requested by name; the case is not one of them.
        requested = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(parameters=[*fixtures, requested])  # type: ignore[attr-defined]
        return run

    return decorate
