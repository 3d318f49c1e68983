"""What can a layer be? Every kind, and the traits by which others ask for kinds."""

from msgspec import Struct

INPUT, OUTPUT, UNUSED, PARAMETER = "input", "output", "unused", "parameter"
CONV, CONV_TRANSPOSE, LINEAR, EMBEDDING, PRELU = "conv", "conv_transpose", "linear", "embedding", "prelu"
BATCH_NORM, LAYER_NORM, RMS_NORM = "batch_norm", "layer_norm", "rms_norm"
GROUP_NORM, INSTANCE_NORM = "group_norm", "instance_norm"
ADD, MULTIPLY, CONCAT, SCALE, SHIFT = "add", "multiply", "concat", "scale", "shift"
MATMUL, ATTENTION = "matmul", "attention"

KIND_TRAITS = {
    "end": "not a part of what is computed: nothing is lost if it has no partner",
    "projection": "a product with a weight, of every unit with every unit",
    "windowed": "its weight is a window that slides: stride, padding, dilation",
    "makes": "makes units from nothing but its weight",
    "folds": "a norm right behind it belongs to it",
    "norm": "normalises, then multiplies by a gain and adds a bias",
    "channels": "its units are on the second axis",
    "refitted": "its gain and bias can be fitted to activations",
    "neutral": "can be made to change nothing: by ones and zeros",
    "sums": "hands on the sum, or what is joined, of what it is given, unit by unit",
    "commutative": "its operands may be written in any order",
}


class Kind(Struct, frozen=True):
    """What a layer is."""

    name: str
    traits: frozenset[str] = frozenset()
    gates: int = 0  # how many times its hidden units a recurrent cell's weight has
    fills: str = ""  # a unit that does not move its statistics: "mean" of the others, or "zero"


def _kinds() -> dict[str, Kind]:
    rows = f"""
        {INPUT} {OUTPUT} {UNUSED}: end
        {PARAMETER} {EMBEDDING}: makes
        {CONV}: projection windowed makes folds
        {LINEAR}: projection makes folds
        {CONV_TRANSPOSE}: windowed folds
        {BATCH_NORM}: norm channels refitted
        {GROUP_NORM}: norm channels refitted
        {INSTANCE_NORM}: norm channels
        {LAYER_NORM} {RMS_NORM}: norm refitted
        {SCALE}: neutral refitted
        {SHIFT}: neutral sums
        {PRELU}: neutral
        {ADD} {CONCAT}: commutative sums
        {MULTIPLY}: commutative
        {MATMUL} {ATTENTION} subtract divide lstm gru rnn_tanh rnn_relu:
    """
    gates, fills = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}, {LAYER_NORM: "mean", RMS_NORM: "zero"}
    kinds = {}
    for row in rows.strip().splitlines():
        names, _, traits = row.partition(":")
        for name in names.split():
            kinds[name] = Kind(name, frozenset(traits.split()), gates.get(name, 0), fills.get(name, ""))
    return kinds


KINDS = _kinds()


def kind_of(name: str) -> Kind:
    """What is known of a kind of layer; of a merge that goes by its operation's name, nothing else."""
    return KINDS.get(name) or Kind(name)


def kinds_with(trait: str) -> frozenset[str]:
    """The names of all kinds of layers that have a trait."""
    assert trait in KIND_TRAITS, trait
    return frozenset(kind.name for kind in KINDS.values() if trait in kind.traits)


ENDS, PROJECTIONS, WINDOWED = kinds_with("end"), kinds_with("projection"), kinds_with("windowed")
NORMS, NORM_FOLDS, REFITTED = kinds_with("norm"), kinds_with("folds"), kinds_with("refitted")
MAKERS, NEUTRAL, SUMS = kinds_with("makes"), kinds_with("neutral"), kinds_with("sums")
COMMUTATIVE, CHANNEL_NORMS = kinds_with("commutative"), kinds_with("channels")
GATES = {kind.name: kind.gates for kind in KINDS.values() if kind.gates}
COUNT = "count"  # the role of a tensor that only counts: it is no part of an architecture
THROUGH = "through"  # the attribute that says what is done to a layer's tensors on their way into it
CONSTANTS = "constants"  # the topic of the note that says which numbers a model has in its code
USUAL_EPSILON = {LAYER_NORM: 1e-5, GROUP_NORM: 1e-5}  # what they add to variances if it is not said
