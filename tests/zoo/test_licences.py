"""Licences: expressions of SPDX, looked at loosely."""

import pytest

from modelkeeper.errors import InvalidMeta
from modelkeeper.meta import checked, read_registration
from modelkeeper.zoo.licences import checked_licence, unknown_licences


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MIT",
        "Apache-2.0 OR MIT",
        "(MIT AND CC-BY-4.0)",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "LicenseRef-our-own",
        "DocumentRef-x:LicenseRef-y",
        "EPL-2.0+",
    ],
)
def test_expressions_are_taken_as_they_are_and_known(text: str) -> None:
    assert checked_licence(f" {text} ") == text
    assert unknown_licences(text) == ()


@pytest.mark.parametrize(
    "text", [7, "x" * 201, "MIT\nApache", "MIT; rm", "MIT\x1b[31m", "(MIT", "MİT", "<b>MIT</b>", ["MIT"]]
)
def test_what_cannot_be_one_is_an_error(text: object) -> None:
    with pytest.raises(InvalidMeta, match="licence"):
        checked_licence(text)


def test_names_that_are_not_known_are_named() -> None:
    assert unknown_licences("Apache2 OR MIT OR apache2") == ("Apache2", "apache2")


def test_it_goes_from_meta_into_the_registration() -> None:
    said = read_registration({"accuracy": 0.9, "licence": "Apache-2.0  OR MIT"}, "net")
    assert said.licence == "Apache-2.0 OR MIT"
    assert checked(said) == said
