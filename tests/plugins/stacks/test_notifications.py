"""Which of Heat's notifications report that a stack has another source."""

from typing import Any

import pytest

from climate.plugins.stacks.notifications import changed_stack

ID = "6b1f0c1e-3f53-4a0a-9d8e-3c2f1b7a9e10"


@pytest.mark.parametrize(
    ("event_type", "is_change"),
    [
        ("orchestration.stack.update.end", True),
        ("orchestration.stack.update.error", True),
        ("orchestration.stack.rollback.end", True),
        ("orchestration.stack.restore.end", True),
        # The source does not change, or Heat is still at work.
        ("orchestration.stack.update.start", False),
        ("orchestration.stack.create.end", False),
        ("orchestration.stack.suspend.end", False),
        ("orchestration.stack.resume.end", False),
        ("orchestration.stack.delete.end", False),
        ("orchestration.autoscaling.end", False),
        ("compute.instance.update", False),
        ("orchestration.stack.update.end\n", False),
        ("", False),
        (None, False),
        (["orchestration.stack.update.end"], False),
    ],
)
def test_only_the_end_of_a_change_of_the_source_counts(event_type: Any, is_change: bool) -> None:
    found = changed_stack(event_type, {"stack_identity": ID, "state": "anything"})
    assert found == (ID if is_change else None)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "text",
        [{"stack_identity": ID}],
        {},
        *({"stack_identity": odd} for odd in (None, 7, [ID], "", f"{ID}\n", "x" * 65, "a/b", "\0")),
    ],
)
def test_rejects_a_change_without_a_valid_id(payload: Any) -> None:
    with pytest.raises(ValueError, match="no valid stack_identity"):
        changed_stack("orchestration.stack.update.end", payload)
