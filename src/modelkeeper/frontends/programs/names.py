"""What does the vocabulary call an operation of a program?

Operations of programs have ATen's names, which are most of the vocabulary's own. ATen has several operators
for one thing, by how memory is laid out or by which kernel computes it: those are one operation of the
vocabulary.
"""

from modelkeeper.graph.vocabulary import LAYERS

# Another name for what the vocabulary has.
NAMES = {
    **dict.fromkeys(("_unsafe_view", "_reshape_alias"), "view"),
    **dict.fromkeys(("alias", "contiguous", "detach", "lift_fresh", "requires_grad", "_to_copy"), "clone"),
    **dict.fromkeys(("alpha_dropout", "feature_dropout"), "dropout"),
    **dict.fromkeys(("_softmax", "_safe_softmax"), "softmax"),
    "_log_softmax": "log_softmax",
    **dict.fromkeys(("mm", "bmm", "mv"), "matmul"),
    "baddbmm": "addmm",
    "vdot": "dot",
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm"), "batch_norm"),
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    **dict.fromkeys(("_weight_norm", "_weight_norm_interface"), "weight_norm"),
    "_convolution": "convolution",
    "_unsafe_index": "index",
    "_index_put_impl": "index_put",
    "unsafe_split": "split",
    "t": "transpose",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "native_channel_shuffle": "channel_shuffle",
    "_conj_physical": "conj_physical",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__xor__": "bitwise_xor",
}


def vocabulary_name(operation: str) -> str:
    """The vocabulary's name for an operation of a program: add for add.Tensor, matmul for mm.default."""
    packet = operation.partition(".")[0]
    return NAMES.get(packet, packet)


def layer_kind(operation: str) -> str:
    """The kind of layer that an operation of a program is with weights of the model; "" if it is none."""
    return LAYERS.get(vocabulary_name(operation), "")
