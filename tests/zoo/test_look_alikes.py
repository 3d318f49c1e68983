"""Names that people take for each other have one skeleton; names that deceive are told."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.zoo.look_alikes import _ROWS, MOST, misleading, skeleton

TEXTS = st.text(max_size=30)  # without surrogates, as hypothesis makes it
PLAIN = st.text("abcdefghjkmnopqstuvwxyz-_ .23456789", max_size=30)
ODD = [letter for odd, _ in _ROWS for letter in odd]


@given(TEXTS)
def test_a_skeleton_is_its_own(name: str) -> None:
    assert skeleton(skeleton(name)) == skeleton(name)
    assert len(skeleton(name)) <= MOST


@given(TEXTS)
def test_how_letters_are_composed_does_not_matter(name: str) -> None:
    composed, plain = unicodedata.normalize("NFC", name), unicodedata.normalize("NFKC", name)
    taken_apart = unicodedata.normalize("NFKD", name)
    assert skeleton(composed) == skeleton(plain) == skeleton(taken_apart) == skeleton(name)


@given(PLAIN, st.data())
def test_case_marks_and_what_is_not_seen_do_not_matter(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name)))
    unseen = data.draw(st.sampled_from("\u200b\u200d\ufeff\u034f\u3164\u0301\u0327\ufe0f\u00ad"))
    assert skeleton(name.upper()) == skeleton(name[:at] + unseen + name[at:]) == skeleton(name)


@given(PLAIN, st.data())
def test_letters_that_are_drawn_alike_do_not_matter(name: str, data: st.DataObject) -> None:
    odd, plain = data.draw(st.sampled_from([row for row in _ROWS if row[1].isalpha()]))
    at = data.draw(st.integers(0, len(odd) - 1))
    assert skeleton(f"{name}{odd[at]}") == skeleton(f"{name}{plain[at]}")


def test_every_letter_of_the_table_is_taken_for_its_plain_one() -> None:
    for odd, plain in (row for row in _ROWS if row[1].isalpha()):
        for letter, meant in zip(odd, plain, strict=True):
            assert skeleton(f"x{letter}x") == skeleton(f"x{meant}x"), letter


def test_a_lunate_sigma_is_no_c() -> None:
    assert "Greek" in misleading("\u03f9ifar")
    assert "Greek" in misleading("a\u03f2e")


@given(PLAIN, PLAIN)
def test_names_that_differ_at_a_glance_are_told_apart(one: str, two: str) -> None:
    """In plain letters without pairs that look like one: skeletons are equal just when names are."""
    if not any(pair in name for pair in ("rn", "vv") for name in (one, two)):
        same = " ".join(one.split()) == " ".join(two.split())
        assert (skeleton(one) == skeleton(two)) == same


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("resnet20", "resn\u0435t20"),
        ("resnet20", "ResNet2O"),
        ("vgg11", "vggl1"),
        ("vgg11", "vggIl"),
        ("modern", "modem"),
        ("ada", "\uff41\uff44\uff41"),
        ("ada", "\U0001d41a\U0001d41d\U0001d41a"),
        ("a-b", "a\u2011b"),
        ("a b", "a\u00a0 b"),
        ("net2", "net\u0968"),
    ],
)
def test_known_pairs(one: str, two: str) -> None:
    assert one != two
    assert skeleton(one) == skeleton(two)


@given(PLAIN, st.sampled_from([letter for letter in ODD if letter.isalpha() and ord(letter) > 0x370]))
def test_a_letter_of_another_script_that_looks_like_a_latin_one_is_refused(name: str, odd: str) -> None:
    if "LATIN" not in unicodedata.name(odd):
        assert "mixes" in misleading(f"{name}a{odd}")
        assert "mixes" in misleading(f"{odd}a{name}")


@given(PLAIN)
def test_plain_names_deceive_nobody(name: str) -> None:
    assert misleading(name) == ""


@pytest.mark.parametrize(
    "name", ["β-VAE", "βVAE", "λNet", "café", "Bjørn", "зима", "日本resnet", "α net", "Ωmega"]
)
def test_names_of_science_and_of_other_languages_are_no_mixture(name: str) -> None:
    assert misleading(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("r\u0435snet", "mixes Cyrillic and Latin"),
        ("\u03bfptimal", "mixes Greek and Latin"),
        ("net\u200b", "cannot be seen"),
        ("\u3164", "cannot be seen"),
        ("ada\u2215net", "looks like a slash"),
    ],
)
def test_names_that_deceive(name: str, why: str) -> None:
    assert why in misleading(name)
    assert misleading(name).isascii()
