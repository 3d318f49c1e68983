"""Manifests: bytes that never change, and every difference is named."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from modelkeeper.errors import InvalidSignature
from modelkeeper.signing import Manifest, SignedParent
from modelkeeper.signing.manifest import MAX_MANIFEST, at

GOLDEN = Path(__file__).parent / "golden"
MANIFEST = Manifest(
    id="0123456789abcdef",
    name="résumé net",
    framework="torch",
    fingerprint="f8" * 16,
    graph="ab" * 32,
    weights="cd" * 32,
    program="ef" * 32,
    metrics={"val_loss": 0.1 + 0.2, "accuracy": 1},
    metric="accuracy",
    value=1.0,
    task="classification",
    data="digits",
    fold="2",
    tags=("small", "nightly"),
    licence="Apache-2.0 OR MIT",
    parents=(SignedParent(id="fedcba9876543210", weights="12" * 32), SignedParent(id="0" * 16)),
    owner="ada",
    organisation="Partner",
    when=at(1_800_000_000.9),
)
OTHERWISE: dict[str, Any] = {
    "value": 0.5,
    "lower_is_better": True,
    "finished": False,
    "metrics": {"accuracy": 0.5},
    "tags": ("small",),
    "parents": (),
}


def test_the_bytes_of_version_1_are_what_they_always_were() -> None:
    golden = (GOLDEN / "manifest-v1.json").read_bytes()
    assert MANIFEST.to_bytes() == golden
    assert Manifest.from_bytes(golden) == msgspec.structs.replace(
        MANIFEST, metrics={"accuracy": 1.0, "val_loss": 0.30000000000000004}
    )


@pytest.mark.parametrize("field", Manifest.__struct_fields__)
def test_each_field_that_is_otherwise_is_named(field: str) -> None:
    other = msgspec.structs.replace(MANIFEST, **{field: OTHERWISE.get(field, "other")})
    expected = [] if field in ("owner", "organisation", "when") else [field]
    assert MANIFEST.differences(other) == expected
    assert other.differences(MANIFEST) == expected


def test_weights_of_parents_count_where_both_sides_know_them() -> None:
    first, second = MANIFEST.parents
    for weights, expected in (("", []), ("12" * 32, []), ("34" * 32, ["parents"])):
        known = msgspec.structs.replace(first, weights=weights)
        facts = msgspec.structs.replace(MANIFEST, parents=(known, second))
        assert MANIFEST.differences(facts) == expected


def test_what_cannot_be_written_is_said() -> None:
    for wrong in ({"value": float("nan")}, {"name": "\ud800"}, {"name": "x" * MAX_MANIFEST}):
        with pytest.raises(InvalidSignature, match="0123456789abcdef"):
            msgspec.structs.replace(MANIFEST, **wrong).to_bytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":1', b'"version":2'),
        (b'"modelkeeper.manifest"', b'"something.else"'),
        (b'"1.0"', b'"1.00"'),
        (b'"1.0"', b'"nan"'),
        (b'"value":"1.0"', b'"value":1'),
        (b'"task":"classification"', b'"task":7'),
        (b'"task"', b'"tusk"'),
        (b'"metrics":{', b'"metrics":[{'),
        (b'"0123456789abcdef"', b'"../../etc/passwd"'),
    ],
)
def test_bytes_that_are_no_manifest_are_one_error(old: bytes, new: bytes) -> None:
    good = MANIFEST.to_bytes()
    assert old in good
    with pytest.raises(InvalidSignature):
        Manifest.from_bytes(good.replace(old, new, 1))
