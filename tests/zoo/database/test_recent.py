"""What was made lately is remembered, within bounds."""

from modelkeeper.zoo.database.recent import Recent


def test_what_is_remembered_is_bounded_in_size() -> None:
    recent: Recent[str, str] = Recent(10, 100)
    recent.put("large", "large", 60)
    recent.put("small", "small", 30)
    recent.put("small", "again", 40)
    assert (recent.get("large"), recent.get("small")) == ("large", "again")
    recent.put("third", "third", 10)
    assert (recent.get("large"), recent.get("small"), recent.get("third")) == (None, "again", "third")
    recent.put("huge", "huge", 101)
    assert recent.get("huge") is None
    recent.put("huge", "huge", 100)
    assert recent.get("huge") == "huge"


def test_what_is_remembered_is_bounded() -> None:
    recent: Recent[str, int] = Recent(3)
    for number in range(5):
        recent.put(str(number), number)
        recent.put("0", 0)
    assert [recent.get(str(number)) for number in range(5)] == [0, None, None, 3, 4]
