"""By which number of their logs are trainings compared?"""

import pytest

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.objective import by_name, by_rule, numbers


@pytest.mark.parametrize(
    ("logged", "chosen"),
    [
        (["loss", "accuracy", "val_loss", "val_accuracy"], "val_accuracy"),
        (["loss", "acc", "val_loss", "val_acc", "val_auc"], "val_acc"),
        (["loss", "auc", "val_loss", "val_auc"], "val_auc"),
        (["loss", "val_loss", "val_mean_squared_error"], "val_mean_squared_error"),
        (["loss", "val_loss", "val_auc", "val_precision"], "val_loss"),  # rivals: neither
        (["loss", "val_loss", "val_cheer"], "val_loss"),  # which way is better?
        (["loss", "val_loss", "learning_rate"], "val_loss"),
    ],
)
def test_without_a_word_from_the_user_held_out_accuracy_counts_and_else_the_loss(
    logged: list[str], chosen: str
) -> None:
    objective = by_rule(dict.fromkeys(logged, 0.5), bare=False)
    assert objective is not None
    assert objective.name == chosen


@pytest.mark.parametrize("logged", [["loss", "accuracy"], [], ["val_cheer"]])
def test_what_was_measured_on_the_data_trained_on_is_not_taken_by_itself(logged: list[str]) -> None:
    assert by_rule(dict.fromkeys(logged, 0.5), bare=False) is None


@pytest.mark.parametrize(
    ("reported", "chosen"),
    [
        (["accuracy"], "accuracy"),
        (["train_loss", "val/acc", "epoch"], "val/acc"),
        (["eval_loss", "eval_runtime", "eval_samples_per_second", "epoch"], "eval_loss"),
        (["eval_loss", "eval_f1", "epoch"], "eval_f1"),
        (["loss", "f1", "auc", "lr"], "loss"),
    ],
)
def test_of_what_a_user_reports_bare_names_count_and_counters_do_not(
    reported: list[str], chosen: str
) -> None:
    objective = by_rule(dict.fromkeys(reported, 0.5))
    assert objective is not None
    assert objective.name == chosen
    assert by_rule({"epoch": 3, "train_loss": 0.1}) is None


def test_a_first_epoch_that_diverged_does_not_change_the_choice() -> None:
    objective = by_rule({"val_accuracy": float("nan"), "val_loss": 1.0})
    assert objective is not None
    assert objective.name == "val_accuracy"
    assert objective.measure({"val_accuracy": float("nan"), "val_loss": 1.0}) is None


def test_a_name_may_need_a_direction() -> None:
    metric = by_name("val_cheer", "max").measure({"val_cheer": 3.0})
    assert metric is not None
    assert (metric.name, metric.value, metric.lower_is_better) == ("cheer", 3.0, False)
    assert by_name("val_loss").parts == (("val_loss", True),)
    with pytest.raises(InvalidSetting, match="mode="):
        by_name("val_cheer")
    with pytest.raises(InvalidSetting, match="choose"):
        by_name("val_loss", "lowest")


def test_numbers_that_cannot_be_so_are_left_out() -> None:
    assert numbers({"val_loss": 0.5, "loss": float("inf"), "accuracy": -1.0}) == {"val_loss": 0.5}
