"""What would go: the same as goes, when the capacity is set."""

from pathlib import Path

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from tests.helpers.zoos import net, register


def test_what_is_foreseen_comes_true(tmp_path: Path) -> None:
    home = str(tmp_path / "zoo")
    local = LocalCoordinator(Settings(home=home, minimum_peers=100))
    records = [register(local, net(4 + number, 8), f"net-{number}", 0.5 + number / 20) for number in range(6)]
    total = sum(record.bytes for record in records)
    capacity = total // 2
    foreseen = local.foresee(capacity, 100)
    assert 0 < foreseen.models < 6
    assert total - foreseen.bytes <= capacity
    assert local.foresee(total, 100).models == 0
    assert len(local.foresee(0, 2).leaving) == 2
    assert local.count() == 6  # nothing was done
    local.close()
    smaller = LocalCoordinator(Settings(home=home, minimum_peers=100, capacity=capacity))
    assert set(smaller.zoo.make_room()) == {record.id for record, _ in foreseen.leaving}
    reasons = {record.id: smaller.show(record.id).reason for record, _ in foreseen.leaving}
    assert {record.id: why for record, why in foreseen.leaving} == reasons
    smaller.close()
