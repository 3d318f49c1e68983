"""Are two models the same but for their widths? Then every layer has its counterpart.

An alignment weighs widths: a narrower model may fit better one stage later, where its widths are the same.
That is right for asking how similar two models are. For lending weights, the counterpart in the same place
is worth more than a layer of the same width elsewhere: from it the child can be made to compute what the
parent computes. Two models are twins when their graphs are equal once shapes are left out.

This is asked once, when weights are about to be lent, and not inside `align`: the similarity of two models
must be what a search finds from prepared graphs and can bound, and that is the best score there is.
"""

from modelkeeper.graph import Graph
from modelkeeper.graph.fingerprint import colour_layers
from modelkeeper.graph.vocabulary import COMMUTATIVE

Pairs = tuple[tuple[int, int], ...]


def twin_pairs(parent: Graph, child: Graph) -> Pairs | None:
    """All layers of two twins in pairs (parent's number, child's number), or None if they are none."""
    if len(parent.layers) != len(child.layers):
        return None
    ours, theirs = colour_layers(child, widths=False), colour_layers(parent, widths=False)
    if sorted(ours.tolist()) != sorted(theirs.tolist()):
        return None
    waiting: dict[int, list[int]] = {}
    for number in range(len(parent.layers)):
        waiting.setdefault(int(theirs[number]), []).append(number)
    partner: list[int] = []
    for number, layer in enumerate(child.layers):
        fed = [partner[edge.source] for edge in layer.inputs]
        for other in waiting[int(ours[number])]:
            sources = [edge.source for edge in parent.layers[other].inputs]
            commutes = layer.kind in COMMUTATIVE
            if sources == fed or (commutes and sorted(sources) == sorted(fed)):
                waiting[int(ours[number])].remove(other)
                partner.append(other)
                break
        else:
            return None
    return tuple((other, number) for number, other in enumerate(partner))
