"""Lineage as people read it: with one parent or several, above and below a model."""

import msgspec

from modelkeeper.cli.tables import lineage, record
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.policy.credit import Credit
from modelkeeper.zoo.records import REPLACED, Record
from tests.display.test_tables import printed


def model(name: str, *parents: Record, similarity: float | None = None) -> Record:
    ids = [parent.id for parent in parents]
    return Record(
        id=name * 16, name=name, owner="ann", framework="torch", parameters=1, bytes=1, fingerprint="",
        graph="", checksum="", created=0.0, last_used=0.0, metric="accuracy", value=0.9,
        parent=ids[0] if ids else "", more_parents=tuple(ids[1:]), similarity=similarity,
    )  # fmt: skip


A, B = model("a"), model("b")
C = model("c", A, B, similarity=0.5)
D = model("d", C, B, similarity=0.75)
E = model("e", D)


def test_a_model_with_several_parents_stands_below_each() -> None:
    family = Lineage(D, (C, B, A), (Lineage(E, (), ()),))
    lines = [line.rstrip() for line in printed(lineage(family)).splitlines()]
    assert lines == [
        f"b ({B.id}): accuracy 0.9",
        f"├── d ({D.id}): accuracy 0.9",
        f"│   └── e ({E.id}): accuracy 0.9",
        f"└── c ({C.id}): accuracy 0.9",
        f"    └── d ({D.id}): accuracy 0.9, similarity 0.750 [again]",
        f"a ({A.id}): accuracy 0.9",
        f"└── c ({C.id}): accuracy 0.9, similarity 0.500 [again]",
    ]


def test_descendants_that_stand_elsewhere_say_so() -> None:
    below = (Lineage(C, (), (Lineage(D, (), (), again=True),)), Lineage(D, (), (Lineage(E, (), ()),)))
    lines = [line.rstrip() for line in printed(lineage(Lineage(B, (), below))).splitlines()]
    assert lines == [
        f"b ({B.id}): accuracy 0.9",
        f"├── c ({C.id}): accuracy 0.9",
        f"│   └── d ({D.id}): accuracy 0.9, similarity 0.750 [again]",
        f"└── d ({D.id}): accuracy 0.9",
        f"    └── e ({E.id}): accuracy 0.9",
    ]


def test_versions_that_were_replaced_stand_there_only_for_what_started_from_them() -> None:
    first, second = (msgspec.structs.replace(model(name, A), state=REPLACED) for name in "cd")
    whole, later = model("f", A), model("e", second)
    below = (Lineage(first, (), ()), Lineage(whole, (), ()), Lineage(second, (), (Lineage(later, (), ()),)))
    lines = [line.rstrip() for line in printed(lineage(Lineage(A, (), below))).splitlines()]
    assert lines == [
        f"a ({A.id}): accuracy 0.9",
        f"├── f ({whole.id}): accuracy 0.9",
        f"└── d ({second.id}): accuracy 0.9 [replaced]",
        f"    └── e ({later.id}): accuracy 0.9",
    ]


def test_models_that_claim_to_descend_from_each_other_end() -> None:
    one = model("a", model("b"))
    two = model("b", one)
    assert printed(lineage(Lineage(one, (two,), ()))).count("(aaaa") == 1


def test_a_record_names_all_that_it_started_from() -> None:
    assert f"{A.id} (similarity 0.500) and {B.id}" in printed(record(C, "files", Credit()))
    assert "its own initial values" in printed(record(A, "files", Credit(lost=1, factor=0.67)))
    assert "67%: claim not checked; starts from it helped 0 and failed 1" in printed(
        record(A, "files", Credit(lost=1, factor=0.67))
    )
