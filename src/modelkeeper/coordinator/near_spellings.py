"""Which tasks and tags does a zoo have, if it has none of those that were asked for?

    said_otherwise({"classification": 12}, {}, "image-classification", ())
    "the zoo has task 'classification' (12 models); you asked for 'image-classification'"

Pure: whoever calls it sees to it that only what may be seen is counted.
"""

import difflib
import re
from collections.abc import Collection, Mapping

ALIKE = 0.6  # of letters, for a word to be a spelling of another
_MOST = 3


def said_otherwise(
    tasks: Mapping[str, int], tags: Mapping[str, int], task: str, wanted_tags: Collection[str]
) -> str:
    """What a zoo has instead of a task or of tags that nothing in it has; "" if that is not why.

    Args:
        tasks: How many models there are for each task.
        tags: How many models have each tag.
        task: What was asked for.
        wanted_tags: Likewise.
    """
    sentences = [_instead("task", task, tasks)] if task else []
    sentences += [_instead("tag", tag, tags) for tag in wanted_tags]
    return "; ".join(sentence for sentence in sentences if sentence)


def _instead(what: str, asked: str, counted: Mapping[str, int]) -> str:
    if asked in counted or not counted:
        return ""
    near = [word for word in counted if _alike(asked, word)]
    others = sorted(near or counted, key=lambda word: (-counted[word], word))
    listed = [f"{word!r} ({counted[word]:,} model{'s' * (counted[word] != 1)})" for word in others[:_MOST]]
    more = f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
    return f"the zoo has {what} {', '.join(listed)}{more}; you asked for {asked!r}"


def _alike(first: str, second: str) -> bool:
    """Could one be another spelling of the other? They share a word, or most of their letters."""
    words = [set(re.findall(r"[a-z0-9]+", text.lower())) for text in (first, second)]
    close = difflib.SequenceMatcher(None, first.lower()[:200], second.lower()[:200]).ratio() >= ALIKE
    return bool(words[0] & words[1]) or close
