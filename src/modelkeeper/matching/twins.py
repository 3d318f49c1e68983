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
from modelkeeper.patience import go_on

Pairs = tuple[tuple[int, int], ...]


def twin_pairs(parent: Graph, child: Graph) -> Pairs | None:
    """Pair all layers of two twins, as (number in the parent, in the child); None if they are no twins."""
    if len(parent.layers) != len(child.layers):
        return None
    child_colours = colour_layers(child, widths=False).tolist()
    parent_colours = colour_layers(parent, widths=False).tolist()
    if sorted(child_colours) != sorted(parent_colours):
        return None
    waiting: dict[int, list[int]] = {}  # by colour: layers of the parent without a partner
    for parent_number in range(len(parent.layers)):
        waiting.setdefault(parent_colours[parent_number], []).append(parent_number)
    partner: list[int] = []  # of each layer of the child: its layer of the parent
    for child_number, child_layer in enumerate(child.layers):
        go_on()
        colour = child_colours[child_number]
        wanted = [partner[edge.source] for edge in child_layer.inputs]
        for parent_number in waiting[colour]:
            sources = [edge.source for edge in parent.layers[parent_number].inputs]
            commutes = child_layer.kind in COMMUTATIVE
            if sources == wanted or (commutes and sorted(sources) == sorted(wanted)):
                waiting[colour].remove(parent_number)
                partner.append(parent_number)
                break
        else:
            return None
    return tuple((parent_number, child_number) for child_number, parent_number in enumerate(partner))
