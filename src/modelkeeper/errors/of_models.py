"""What can be wrong with a model, its graph, its weights, or what was to be done with them?"""

from modelkeeper.errors.base import ModelKeeperError


class InvalidGraph(ModelKeeperError):
    """A graph breaks its own rules, or its bytes are no graph."""

    code, status = "invalid_graph", 422
    remedy = (
        "Describe the model again with this version (`modelkeeper describe`). If the file was written by it, "
        "report the model: a graph that the front end makes is always valid."
    )

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem

    def __str__(self) -> str:
        return f"invalid graph: {self.where}: {self.problem}"


class UnknownFramework(ModelKeeperError):
    """No front end takes this model."""

    code = "unknown_framework"
    remedy = (
        "Pass a torch.nn.Module, a keras.Model or an ONNX model, not its weights or a wrapper of your own; "
        "install the framework's extra (`pip install 'modelkeeper[torch]'`), or add a front end."
    )

    def __init__(self, kind: str, known: tuple[str, ...]) -> None:
        super().__init__(kind, known)
        self.kind, self.known = kind, known

    def __str__(self) -> str:
        known = ", ".join(self.known)
        return f"{self.kind} is no model of a known framework ({known}). Pass the model itself."


class InvalidModelFile(ModelKeeperError):
    """A file holds no model, or one that breaks the rules of its format."""

    code = "invalid_model_file"
    remedy = (
        "Export or download the file again. Files that hold code (pickles, Lambda layers) are opened with "
        "--trust alone; weights without an architecture need --model."
    )

    def __init__(self, file: str, problem: str, advice: str) -> None:
        super().__init__(file, problem, advice)
        self.file, self.problem, self.advice = file, problem, advice

    def __str__(self) -> str:
        return f"{self.file} cannot be used: {self.problem}. {self.advice}."


class CannotDescribe(ModelKeeperError):
    """The model did not run on the inputs there were."""

    code = "cannot_describe"
    remedy = (
        "Give inputs that the model runs on: `example_inputs=` in Python, `--input 1,3,32,32` on the command "
        "line. See that `model(inputs)` works on the CPU."
    )

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model, self.problem, self.advice = model, problem, advice

    def __str__(self) -> str:
        return f"cannot describe {self.model}: {self.problem}. {self.advice}"


class NoProgram(ModelKeeperError):
    """A model cannot be written down as a program. Without one it can lend its weights, uncalibrated."""

    code = "no_program"
    remedy = (
        "Nothing need be done: the model lends and borrows without a program, only uncalibrated. For a "
        "program, avoid writing into parts of tensors and control flow that depends on values."
    )

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(model, problem)
        self.model, self.problem = model, problem

    def __str__(self) -> str:
        return f"{self.model} has no program: {self.problem}. It can lend its weights, not be run elsewhere."


class InvalidProgram(ModelKeeperError):
    """A program breaks its own rules, or cannot run on what it is given."""

    code = "invalid_program"
    remedy = (
        "Register the model anew with this version. A program from elsewhere that breaks the rules is not "
        "run, whoever sent it; its weights can still be lent."
    )

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem

    def __str__(self) -> str:
        return f"invalid program: {self.where}: {self.problem}"


class CannotCalibrate(ModelKeeperError):
    """Examples or models do not serve to calibrate. The child is as it was."""

    code = "cannot_calibrate"
    remedy = (
        "Give batches as the model is trained on them, finite and of one shape, or leave out `calibrate=`: "
        "the warm start works without."
    )

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"cannot calibrate: {self.problem}. {self.advice}."


class CannotMaterialise(ModelKeeperError):
    """Nothing says how a model that was built without memory is initialised. The model is as it was."""

    code = "cannot_materialise"
    remedy = (
        "Give the module that owns the tensor a method `reset_parameters` that fills it, or build the model "
        "with memory instead of on the meta device."
    )

    def __init__(self, model: str, tensor: str, problem: str = "no rule does") -> None:
        super().__init__(model, tensor, problem)
        self.model, self.tensor, self.problem = model, tensor, problem

    def __str__(self) -> str:
        return (
            f"cannot initialise {self.tensor} of {self.model}, which is on the meta device: {self.problem}. "
            f"Give its module a method reset_parameters that fills it, or build the model with memory."
        )


class CannotProbe(ModelKeeperError):
    """Batches, a loss or an optimizer do not serve to let starts race. The model is as it was."""

    code = "cannot_probe"
    remedy = (
        "Give `probe=` at least 4 batches (better 50), a loss that is finite on them, and an optimizer of "
        "this model; or leave it out."
    )

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"cannot probe: {self.problem}. {self.advice}."


class CannotShare(ModelKeeperError):
    """The processes that train a model together cannot be told from how it is divided among them."""

    code = "cannot_share"
    remedy = (
        "Query for the model before it is divided (FSDP, tensor parallelism), or divide it over one device "
        "mesh."
    )

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model, self.problem, self.advice = model, problem, advice

    def __str__(self) -> str:
        return f"cannot tell who trains {self.model}: {self.problem}. {self.advice}."


class RanksApart(ModelKeeperError):
    """Not all processes that train a model together have called. No model was changed."""

    code = "ranks_apart"
    remedy = (
        "Call it on every rank, outside of `if rank == 0`. If some ranks come later than that, raise "
        "`patience=` of the client."
    )

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"processes that train together were apart: {self.problem}. Call it on every rank, not only "
            "where rank == 0; if some come later than that, set patience= of the client."
        )


class InvalidWeights(ModelKeeperError):
    """Weights do not fit the model they were meant for. Nothing was written."""

    code, status = "invalid_weights", 422
    remedy = (
        "Compare names and shapes with the graph (`modelkeeper describe`): a safetensors file must hold each "
        "tensor of the model, and nothing that is not finite."
    )

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"weights for {self.name!r} do not fit: {self.problem}. Nothing was changed."


class InvalidPairs(ModelKeeperError):
    """An alignment names layers that are not there, or one of them twice."""

    code = "invalid_pairs"
    remedy = "Take the pairs from `modelkeeper.matching.align` of the same two graphs."

    def __init__(self, pair: str, problem: str) -> None:
        super().__init__(pair, problem)
        self.pair, self.problem = pair, problem

    def __str__(self) -> str:
        return f"the pair {self.pair} cannot be: {self.problem}. Take the pairs from `align` of both graphs."


class CannotGather(ModelKeeperError, ValueError):
    """A tensor cannot be filled from another one in the way that was asked for. Nothing was written."""

    code = "cannot_gather"
    remedy = (
        "Check dtypes and shapes of what you gather. If `transfer` raised it, report the two models: a plan "
        "never asks for that."
    )

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem}. Nothing was written."


class TooLargeToMatch(ModelKeeperError):
    """A graph has more layers or edges than an alignment takes."""

    code, status = "too_large_to_match", 422
    remedy = "Describe and match a part of the model, such as one of its towers."

    def __init__(self, nodes: str, edges: str, max_nodes: str, max_edges: str) -> None:
        super().__init__(nodes, edges, max_nodes, max_edges)
        self.nodes, self.edges, self.max_nodes, self.max_edges = nodes, edges, max_nodes, max_edges

    def __str__(self) -> str:
        return (
            f"the model has {self.nodes} layers and {self.edges} connections, too many to be matched "
            f"(at most {self.max_nodes} and {self.max_edges}). Describe and match a part of it."
        )


class TooLongToPlan(ModelKeeperError):
    """There was no time to plan what a parent lends."""

    code, status = "too_long_to_plan", 422
    remedy = (
        "Train from the model's own values, raise the setting `query_time`, or name a parent that is more "
        "alike."
    )

    def __init__(self, parents: str, seconds: str) -> None:
        super().__init__(parents, seconds)
        self.parents, self.seconds = parents, seconds

    def __str__(self) -> str:
        advice = "Train from the model's own values, or ask with a smaller model."
        return f"what {self.parents} would lend could not be planned within {self.seconds} s. {advice}"


class InvalidIndex(ModelKeeperError):
    """The files of a search index cannot be used. It is made anew from the catalog."""

    code = "invalid_index"
    remedy = (
        "Delete the file that is named. The index is made anew from the catalog when the zoo is next opened."
    )

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        advice = "Delete it; it is made anew from the zoo."
        return f"the index at {self.path} cannot be used: {self.problem}. {advice}"
