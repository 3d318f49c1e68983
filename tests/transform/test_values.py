"""Values of plans are frozen."""

from tests.helpers.values import changeable


def test_what_was_built_and_checked_cannot_be_changed() -> None:
    collected = {"Composites", "Epsilons", "Merges", "Spreads"}  # filled while a plan is made
    assert set(changeable("modelkeeper.transform")) == collected
