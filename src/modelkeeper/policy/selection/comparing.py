"""How are two candidates compared, and how is the difference said?

Ties go to the more similar, then the newer, then the smaller id: so every ranking is the only one.
"""

from modelkeeper.policy.selection.base import Candidate


def tie_order(candidate: Candidate) -> tuple[float, float, str]:
    """The end of every sort key: the more similar first, then the newer, then the smaller id."""
    return (-candidate.similarity, -candidate.created, candidate.id)


def why_tie_lost(what: str, loser: Candidate, winner: Candidate) -> str:
    """Which of similarity, age and id decided between two candidates that `what` could not tell apart."""
    if loser.similarity != winner.similarity:
        return f"{what}, but similarity {below(loser.similarity, winner.similarity)}"
    if loser.created != winner.created:
        return f"{what} and similarity, but older"
    return f"{what}, similarity and age as {winner.id}, whose id comes first"


def on_same_data(candidate: Candidate, data: str) -> bool:
    """Was it trained on the child's data set? If either is unknown, it was not."""
    return bool(data) and candidate.data == data


def known_standing(candidate: Candidate) -> float:
    """Its standing among its peers, 0 if that is not known."""
    return candidate.standing or 0.0


def believed_standing(candidate: Candidate) -> float:
    """Its standing, as far as what is claimed of it is believed."""
    return known_standing(candidate) * candidate.credit


def below(low: float, high: float, what: str = "") -> str:
    """'0.21 below 0.3', with as many digits as it takes to see the difference."""
    return f" below {what}".join(told_apart(low, high))


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see that they differ."""
    for digits in range(3, 17):
        pair = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if one == other or pair[0] != pair[1]:
            break
    return pair
