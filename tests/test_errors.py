"""Errors: one root, picklable, and messages that do not change on the way."""

import pickle
import re

import click
import pytest

from modelkeeper import ModelKeeperError, errors
from modelkeeper.cli import main

EXAMPLES = [
    errors.InvalidGraph("layer 3 ('fc')", "its size is -1"),
    errors.UnknownFramework("dict", ("torch",)),
    errors.InvalidModelFile("model.onnx", "it is no ONNX file", "Export it again"),
    errors.CannotDescribe("Net", "it wants 3 channels", "Pass example_inputs"),
    errors.NoProgram("Net", "it writes into a part of a tensor"),
    errors.InvalidProgram("step 3 (conv2d.default)", "no value 9 among 7"),
    errors.CannotCalibrate("the batches hold NaN", "Clean the data"),
    errors.CannotMaterialise("Net", "positions"),
    errors.CannotProbe("there are 2 batches", "Give at least 4, better 50"),
    errors.CannotShare("Net", "its parameters do not lie on one device mesh", "Query for it before"),
    errors.RanksApart("of 2 only rank 0 called within 30 s"),
    errors.InvalidWeights("fc.weight", "shape (3, 4), not (4, 3)"),
    errors.InvalidPairs("(3, 4)", "the parent has 2 layers"),
    errors.CannotGather("arrays of object cannot be gathered"),
    errors.TooLargeToMatch("9,000", "10,000", "8,192", "65,000"),
    errors.TooLongToPlan("resnet20", "30"),
    errors.InvalidIndex("/zoo/index", "it ends too soon"),
    errors.NotInstalled("the zoo", ("obstore", "sqlalchemy"), "zoo"),
    errors.InvalidSetting("buckets", "0", "give at least 1"),
    errors.UnknownAccount("user", "'ada'", "there is none of this id"),
    errors.AccountConflict("token 0123 is the last of an administrator", "Make another first."),
    errors.InvalidMetric("accuracy", "-1 is out of range", "give a fraction from 0 to 1"),
    errors.NotFinite("accuracy", "nan is not finite", "a model that diverged cannot be compared"),
    errors.InvalidMeta("tags", "5", "give a list of names"),
    errors.ModelRefused("resnet20", "accuracy 0.1 is far below its peers", "Train it longer."),
    errors.UnknownModel("resnet20", ("0123", "4567")),
    errors.ZooUnusable("zoo/", "it is no database", "Choose another."),
    errors.DiskFull("zoo/", "no space left", "Free some room."),
    errors.WrongStore("s3://b/zoo", "it is another", "Give the right one."),
    errors.ShardsUnreachable("ray://head:10001", "there is no Ray", "Check it."),
    errors.CatalogSilent("postgresql://db/zoo", "it has not answered for 5 s", "Check it."),
    errors.StoreSilent("s3://b/zoo", "it has not answered for 3 s", "Check it."),
    errors.ReadOnlyZoo("zoo/", "it may only be read", "Ask its owner."),
    errors.CorruptCatalog("zoo/", "the record of 0123 is damaged", "Restore it."),
    errors.CorruptWeights("0123", "the file is missing"),
    errors.UnreadableWeights("0123", "Permission denied"),
    errors.InvalidSignature("0123", "signed was something else: weights", "Do not use it."),
    errors.InvalidKey("/keys/ada.pem", "others may read it", "Make it yours alone."),
    errors.InvalidBackup("/backups/zoo", "it is not whole", "Make another."),
    errors.InvalidBundle("bundle.json", "names a model twice", "Ask who made it."),
    errors.CoordinatorUnreachable("http://10.0.0.7", "Connection refused", "Check its address."),
    errors.NotReady("its search index is being opened", "Wait."),
    errors.NotAllowed("this needs the scope write", "Ask for one."),
    errors.NotAuthenticated("the token is not valid", "Give another."),
    errors.QuotaExceeded("you keep 5 models, 5 are allowed", "Remove some."),
    errors.TooManyRequests("more than 5 requests per second", "Ask less often.", "0.2"),
    errors.CannotLoadFactory("models:net", "no module 'models' is installed"),
]


def test_every_error_has_an_example_here_and_a_line_in_the_tree() -> None:
    assert set(errors.kinds()) == {type(error) for error in EXAMPLES}
    assert all(f" {kind.__name__} " in str(errors.__doc__) for kind in errors.kinds())


# What programs and links go by: a code may be added, none may change.
CODES = """
    account_conflict cannot_calibrate cannot_describe cannot_gather cannot_load_factory cannot_materialise
    cannot_probe cannot_share catalog_silent coordinator_unreachable corrupt_catalog corrupt_weights disk_full
    invalid_backup invalid_bundle invalid_graph invalid_index invalid_key invalid_meta invalid_metric
    invalid_model_file invalid_pairs invalid_program invalid_setting invalid_signature invalid_weights
    model_refused no_program not_allowed not_authenticated not_finite not_installed not_ready quota_exceeded
    ranks_apart read_only_zoo shards_unreachable store_silent too_large_to_match too_long_to_plan
    too_many_requests unknown_account unknown_framework unknown_model unreadable_weights wrong_store
    zoo_unusable
"""


def test_codes_never_change() -> None:
    assert sorted(kind.code for kind in errors.kinds()) == CODES.split()
    assert errors.InvalidMeta("tags", "5", "give names").page() == f"{errors.PAGE}#invalid_meta"


@pytest.mark.parametrize("kind", errors.kinds(), ids=lambda kind: kind.code)
def test_every_error_says_its_cause_and_a_remedy_of_its_own(kind: type[ModelKeeperError]) -> None:
    """Commands that a remedy names are there."""
    assert str(kind.__doc__).endswith(".")
    assert kind.__dict__["remedy"].endswith(".")
    named = re.findall(r"modelkeeper ([a-z]+)( [a-z]+)?", kind.remedy)
    for command, below in named:
        found = main.commands[command]
        assert not isinstance(found, click.Group) or below.strip() in found.commands


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle(error: ModelKeeperError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_message_names_all_that_the_error_holds(error: ModelKeeperError) -> None:
    fields = [
        part for value in vars(error).values() for part in ([value] if isinstance(value, str) else value)
    ]
    assert fields
    assert all(field in str(error) or repr(field) in str(error) for field in fields)


def test_every_error_has_a_code_of_its_own_and_a_status_of_http() -> None:
    codes = [type(error).code for error in EXAMPLES]
    assert len({*codes, ModelKeeperError.code}) == len(codes) + 1
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)
    assert all(400 <= type(error).status < 600 for error in EXAMPLES)
    statuses: dict[type[errors.ModelKeeperError], int] = {
        errors.NotAllowed: 403,
        errors.NotAuthenticated: 401,
        errors.QuotaExceeded: 403,
        errors.TooManyRequests: 429,
        errors.UnknownModel: 404,
        errors.ZooUnusable: 503,
        errors.DiskFull: 507,
        errors.UnknownFramework: 500,
    }
    assert {kind: kind.status for kind in statuses} == statuses
