"""What may others do with a model? Its licence: an SPDX expression, looked at loosely.

    checked_licence("Apache-2.0 OR MIT")       one printable line of what such expressions are made of
    unknown_licences("Apache2")                ("Apache2",): no licence that is known here, perhaps a typo

No list of licences is ever whole, so one that is not known is a remark and no error. `LicenseRef-` begins the
names of licences that are nobody else's.
"""

import re

from modelkeeper.errors import InvalidMeta

MAX_LICENCE = 200
_WORD = re.compile(r"[A-Za-z0-9.+:-]+")
_EXPRESSION = re.compile(r"[A-Za-z0-9.+:() -]+")
_OPERATORS = ("AND", "OR", "WITH")
# What models are shared under; of SPDX's list, and what model hubs call licences that are not on it.
KNOWN = frozenset(
    """
    0BSD AFL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-3-Clause
    BSD-3-Clause-Clear BSL-1.0 CC-BY-1.0 CC-BY-2.0 CC-BY-3.0 CC-BY-4.0 CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0
    CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0 CC-BY-ND-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0
    CDLA-Permissive-1.0 CDLA-Permissive-2.0 CDLA-Sharing-1.0 ECL-2.0 EPL-2.0 EUPL-1.2 GPL-2.0-only
    GPL-2.0-or-later GPL-3.0-only GPL-3.0-or-later ISC LGPL-2.1-only LGPL-2.1-or-later LGPL-3.0-only
    LGPL-3.0-or-later LPPL-1.3c MIT MIT-0 MPL-2.0 MS-PL NCSA ODbL-1.0 ODC-By-1.0 OFL-1.1 OSL-3.0 PDDL-1.0
    PostgreSQL Unlicense WTFPL Zlib NONE NOASSERTION
    """.split()
)


def checked_licence(text: object) -> str:
    """A licence as an SPDX expression is written, with single spaces.

    Raises:
        InvalidMeta: It cannot be one.
    """
    if not isinstance(text, str):
        raise InvalidMeta("licence", repr(text)[:80], "give an SPDX expression, e.g. Apache-2.0")
    text = " ".join(text.split(" ")).strip() if text.isprintable() else text
    if len(text) > MAX_LICENCE:
        raise InvalidMeta("licence", f"{text[:40]!r}…", f"it has {len(text)} letters; at most {MAX_LICENCE}")
    if text and (_EXPRESSION.fullmatch(text) is None or text.count("(") != text.count(")")):
        advice = "give an SPDX expression, e.g. Apache-2.0, or LicenseRef- and a name of your own"
        raise InvalidMeta("licence", repr(text)[:80], advice)
    return re.sub(r" +", " ", text)


def unknown_licences(text: str) -> tuple[str, ...]:
    """The names in a licence that are not known here, and not said to be one's own."""
    names = [word for word in _WORD.findall(text) if word not in _OPERATORS]
    exceptions = {
        after
        for before, after in zip(_WORD.findall(text), _WORD.findall(text)[1:], strict=False)
        if before == "WITH"
    }
    return tuple(
        name
        for name in dict.fromkeys(names)
        if name.removesuffix("+") not in KNOWN and name not in exceptions and "LicenseRef-" not in name
    )
