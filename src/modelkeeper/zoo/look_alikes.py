"""Which names do people take for each other? A skeleton is what is left of a name at a glance.

    skeleton("ResNet-2O") == skeleton("resnet-20") == skeleton("rеsnet–20")    (a Cyrillic е, a long dash)
    misleading("rеsnet")                     why nobody could tell what it says; "": it says what it shows

Two names with one skeleton look alike: they differ in case, in width or style of their letters, in marks, in
letters that cannot be seen, or in letters of other scripts, digits and dashes that are drawn alike. The table
holds the letters that matter for names in Latin script; it is no list of all that Unicode has. Pure.
"""

import unicodedata

MOST = 200  # letters of a skeleton
SLASHES = "\u2044\u2215\u29f8\u2571\u1735"  # drawn as the one between an owner and a name

# Drawn as the letters below them, by script. Capitals stand apart where they are drawn otherwise.
_ROWS = (
    ("аеорсухѕіјԁԛԝһѵӏкмтвнгьԍ", "aeopcyxsijdqwhvlkmtbhrbg"),  # Cyrillic
    ("АЕОРСУХЅІЈԚԜҺѴӀКМТВНЬԌЗ", "aeopcyxsijqwhvlkmtbhbg3"),
    ("αοινρυκωχε", "aoivpukwxe"),  # Greek
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϳ", "abezhikmnoptyxj"),
    ("օսոհցզյքԼՕՍ", "ounhgqjplou"),  # Armenian
    ("ᎪᎬᎻᎫᎳᎷᏚᏟᏞᏢᎡᎢᎠᏙᏃᏴᏀᏦᎩᏔᏒ", "aehjwmsclpridvzbgkywr"),  # Cherokee
    ("ꓐꓑꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ", "bpdtgkjczfmnlsrvhwxyaeiou"),  # Lisu
    ("ⲟⲣⲥⲭⲁⲕⲓⲙⲛⲧⲩ", "opcxakimntu"),  # Coptic
    ("ıȷɡɑɩøłđħŧƅꞵʟɴʀʏᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢꜱ", "ijgaioldhtbblnryacdejkmoptuvwzs"),  # Latin, drawn otherwise
    ("‐‑‒–—―−﹘ⲻ˗⁃", "-----------"),
    ("’‘ʼʹ′`´ˈ", "''''''''"),
    (SLASHES, "/" * len(SLASHES)),
    ("∶ː꞉", ":::"),
)
_TABLE = {ord(letter): plain for odd, even in _ROWS for letter, plain in zip(odd, even, strict=True)}
# Nor may these stand among letters of another script: they show a c, though Unicode takes them for a sigma.
_DECEIVING = {*_TABLE, *map(ord, "Ϲϲ")}
# Digits and letters that are taken for each other, once case is gone; then pairs that look like one letter.
_DIGITS = {ord(letter): plain for letter, plain in zip("0i1|!", "ollll", strict=True)}
_PAIRS = (("rn", "m"), ("vv", "w"))
_UNSEEN = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")  # printable, says Unicode, but blank


def skeleton(name: str) -> str:
    """What a name looks like; of two names that are alike, the same. A skeleton is its own."""
    before, text = None, name
    while (
        text != before
    ):  # what one step makes, another may change further; every round is shorter or simpler
        before = text
        text = "".join(map(_bare, unicodedata.normalize("NFKD", text)))
        text = unicodedata.normalize("NFKD", text.casefold()).translate(_TABLE).translate(_DIGITS)
        for pair, letter in _PAIRS:
            text = text.replace(pair, letter)
        text = " ".join(text.split())
    return text[:MOST].rstrip()


def _bare(letter: str) -> str:
    """A letter without what is not seen: "" for marks and blanks; a digit of any script as ours."""
    if letter.isascii():
        return letter
    kind = unicodedata.category(letter)
    if kind in ("Mn", "Me", "Cf", "Cc", "Cs", "Co", "Cn") or letter in _UNSEEN:
        return ""
    digit = unicodedata.decimal(letter, None)
    return _TABLE.get(ord(letter), letter) if digit is None else str(digit)


def misleading(name: str) -> str:
    """Why a name would deceive whoever reads it, whatever other names there are; "": it would not.

    A word is of one script: one letter of another that looks like one of its own is there to deceive. Scripts
    that are written together (Chinese, Japanese, Korean and Latin), and letters that look like no other (the
    β of βVAE, the λ of λNet), are no such mixture.
    """
    for letter in name:
        if letter in _UNSEEN or unicodedata.category(letter) == "Cf":
            return f"it has a letter that cannot be seen, {letter!a}"
        if letter in SLASHES:
            return f"it has {letter!a}, which looks like a slash"
    scripts: dict[str, str] = {}  # of the word so far: script -> a letter of it
    for letter in f"{name} ":
        if unicodedata.combining(letter):
            continue
        script = _script(letter)
        if not script:
            scripts = {}
            continue
        scripts.setdefault(script, letter)
        if len(scripts) > 1 and (odd := [each for each in scripts.values() if ord(each) in _DECEIVING]):
            named = " and ".join(known.capitalize() for known in sorted(scripts))
            return f"it mixes {named} letters, of which {odd[0]!a} looks like another"
    return ""


_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "LISU", "COPTIC")


def _script(letter: str) -> str:
    """The script of a letter, of those that the table knows; "": of another, or no letter."""
    if not letter.isalpha():
        return ""
    if letter.isascii():
        return "LATIN"
    name = unicodedata.name(letter, "")
    return next((script for script in _SCRIPTS if name.startswith(script)), "")
