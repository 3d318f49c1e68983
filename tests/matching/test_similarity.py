"""What a layer is worth, and which tenth a similarity falls in."""

from modelkeeper.matching.similarity import bucket


def test_buckets_are_tenths() -> None:
    assert [bucket(x) for x in (0.0, 0.05, 0.1, 0.95, 1.0)] == [0, 0, 1, 9, 9]
