"""Values of policies are frozen."""

from tests.helpers.values import changeable


def test_what_was_built_and_checked_cannot_be_changed() -> None:
    collected = {"_Groups"}  # filled while candidates are sorted into them
    assert set(changeable("modelkeeper.policy")) == collected
