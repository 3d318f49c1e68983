"""Every error modelkeeper raises on purpose.

ModelKeeperError
├── InvalidGraph         a graph breaks its own rules, or its bytes are no graph
├── UnknownFramework     no front end takes this model
├── InvalidModelFile     a file holds no model, or one that breaks the rules of its format
├── CannotDescribe       the model did not run on the inputs there were
├── NoProgram            a model cannot be written down as a program
├── InvalidProgram       a program breaks its own rules, or cannot run on what it is given
├── CannotCalibrate      examples or models do not serve to calibrate
├── CannotProbe          batches, a loss or an optimizer do not serve to let starts race
├── CannotShare          the processes that train a model cannot be told from how it is divided
├── RanksApart           not all processes that train a model together have called
├── InvalidWeights       weights do not fit the model they were meant for
├── InvalidPairs         an alignment names layers that are not there, or one of them twice
├── CannotGather         a tensor cannot be filled from another one in the way that was asked for
├── TooLargeToMatch      a graph has more layers than an alignment takes
├── InvalidIndex         the files of a search index cannot be used
├── InvalidSetting       a setting has a value that cannot work
├── InvalidMeta          what was said of a model cannot be so
├── ModelRefused         the zoo did not take a model
├── UnknownModel         no model of the zoo is called that
├── ZooUnusable          the zoo's catalog or its store cannot be opened, read or written
│   └── DiskFull         there is no room for what was to be written
├── CorruptWeights       the bytes in the store are not what was registered
├── InvalidMetric        how good a model is was not said, or cannot be so
│   └── NotFinite        it is NaN or infinite: the training diverged
├── CoordinatorUnreachable  the service did not answer, or answered nonsense
├── NotAllowed           the token may not do this
│   └── NotAuthenticated  there is no token, or none that the service knows
├── QuotaExceeded        a user keeps too much
│   └── TooManyRequests  a user asks too often, or the service is busy: waiting helps
└── CannotLoadFactory    a `module:factory` on the command line gave no model

A message says what happened, with the value that caused it, and then what to do. All fields go to
`Exception.__init__`, which keeps every error picklable, as worker processes need. Programs decide by the
class, or by its `code` and `status`; never by a message.
"""

from typing import ClassVar


class ModelKeeperError(Exception):
    """The root: `except ModelKeeperError` catches all that modelkeeper raises on purpose."""

    code: ClassVar[str] = "error"  # names the class on the wire; no other class has it, and it never changes
    status: ClassVar[int] = 500  # of HTTP; 500: nothing that a service says to those who call it


class InvalidGraph(ModelKeeperError):
    """A graph breaks its own rules, or its bytes are no graph."""

    code, status = "invalid_graph", 422

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem

    def __str__(self) -> str:
        return f"invalid graph: {self.where}: {self.problem}"


class UnknownFramework(ModelKeeperError):
    """No front end takes this model."""

    code = "unknown_framework"

    def __init__(self, kind: str, known: tuple[str, ...]) -> None:
        super().__init__(kind, known)
        self.kind, self.known = kind, known

    def __str__(self) -> str:
        known = ", ".join(self.known)
        return f"{self.kind} is no model of a known framework ({known}). Pass the model itself."


class InvalidModelFile(ModelKeeperError):
    """A file holds no model, or one that breaks the rules of its format."""

    code = "invalid_model_file"

    def __init__(self, file: str, problem: str, advice: str) -> None:
        super().__init__(file, problem, advice)
        self.file, self.problem, self.advice = file, problem, advice

    def __str__(self) -> str:
        return f"{self.file} cannot be used: {self.problem}. {self.advice}."


class CannotDescribe(ModelKeeperError):
    """The model did not run on the inputs there were."""

    code = "cannot_describe"

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model, self.problem, self.advice = model, problem, advice

    def __str__(self) -> str:
        return f"cannot describe {self.model}: {self.problem}. {self.advice}"


class NoProgram(ModelKeeperError):
    """A model cannot be written down as a program. Without one it can lend its weights, uncalibrated."""

    code = "no_program"

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(model, problem)
        self.model, self.problem = model, problem

    def __str__(self) -> str:
        return f"{self.model} has no program: {self.problem}. It can lend its weights, not be run elsewhere."


class InvalidProgram(ModelKeeperError):
    """A program breaks its own rules, or cannot run on what it is given."""

    code = "invalid_program"

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem

    def __str__(self) -> str:
        return f"invalid program: {self.where}: {self.problem}"


class CannotCalibrate(ModelKeeperError):
    """Examples or models do not serve to calibrate. The child is as it was."""

    code = "cannot_calibrate"

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"cannot calibrate: {self.problem}. {self.advice}."


class CannotProbe(ModelKeeperError):
    """Batches, a loss or an optimizer do not serve to let starts race. The model is as it was."""

    code = "cannot_probe"

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"cannot probe: {self.problem}. {self.advice}."


class CannotShare(ModelKeeperError):
    """The processes that train a model together cannot be told from how it is divided among them."""

    code = "cannot_share"

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model, self.problem, self.advice = model, problem, advice

    def __str__(self) -> str:
        return f"cannot tell who trains {self.model}: {self.problem}. {self.advice}."


class RanksApart(ModelKeeperError):
    """Not all processes that train a model together have called. No model was changed."""

    code = "ranks_apart"

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

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)
        self.name, self.problem = name, problem

    def __str__(self) -> str:
        return f"weights for {self.name!r} do not fit: {self.problem}. Nothing was changed."


class InvalidPairs(ModelKeeperError):
    """An alignment names layers that are not there, or one of them twice."""

    code = "invalid_pairs"

    def __init__(self, pair: str, problem: str) -> None:
        super().__init__(pair, problem)
        self.pair, self.problem = pair, problem

    def __str__(self) -> str:
        return f"the pair {self.pair} cannot be: {self.problem}. Take the pairs from `align` of both graphs."


class CannotGather(ModelKeeperError, ValueError):
    """A tensor cannot be filled from another one in the way that was asked for. Nothing was written."""

    code = "cannot_gather"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem}. Nothing was written."


class TooLargeToMatch(ModelKeeperError):
    """A graph has more layers or edges than an alignment takes."""

    code, status = "too_large_to_match", 422

    def __init__(self, nodes: str, edges: str, max_nodes: str, max_edges: str) -> None:
        super().__init__(nodes, edges, max_nodes, max_edges)
        self.nodes, self.edges, self.max_nodes, self.max_edges = nodes, edges, max_nodes, max_edges

    def __str__(self) -> str:
        return (
            f"the model has {self.nodes} layers and {self.edges} connections, too many to be matched "
            f"(at most {self.max_nodes} and {self.max_edges}). Describe and match a part of it."
        )


class InvalidIndex(ModelKeeperError):
    """The files of a search index cannot be used. It is made anew from the catalog."""

    code = "invalid_index"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        advice = "Delete it; it is made anew from the zoo."
        return f"the index at {self.path} cannot be used: {self.problem}. {advice}"


class InvalidSetting(ModelKeeperError):
    """A setting has a value that cannot work."""

    code, status = "invalid_setting", 422

    def __init__(self, name: str, value: str, advice: str) -> None:
        super().__init__(name, value, advice)
        self.name, self.value, self.advice = name, value, advice

    def __str__(self) -> str:
        return f"{self.name} cannot be {self.value}: {self.advice}."


class InvalidMeta(ModelKeeperError):
    """What was said of a model cannot be so."""

    code, status = "invalid_meta", 422

    def __init__(self, field: str, value: str, advice: str) -> None:
        super().__init__(field, value, advice)
        self.field, self.value, self.advice = field, value, advice

    def __str__(self) -> str:
        return f"meta: {self.field} cannot be {self.value}: {self.advice}."


class ModelRefused(ModelKeeperError):
    """The zoo did not take a model: it would be of no use as a parent, or there is no room for it."""

    code, status = "model_refused", 409

    def __init__(self, name: str, reason: str, advice: str) -> None:
        super().__init__(name, reason, advice)
        self.name, self.reason, self.advice = name, reason, advice

    def __str__(self) -> str:
        return f"{self.name!r} was not registered: {self.reason}. {self.advice}"


class UnknownModel(ModelKeeperError):
    """No model of the zoo is called that, or several are."""

    code, status = "unknown_model", 404

    def __init__(self, name: str, several: tuple[str, ...] = (), near: tuple[str, ...] = ()) -> None:
        super().__init__(name, several, near)
        self.name, self.several, self.near = name, several, near

    def __str__(self) -> str:
        if self.several:
            return f"several models are called {self.name!r}: {', '.join(self.several)}. Give the whole id."
        meant = f"Did you mean {' or '.join(self.near)}? " if self.near else ""
        return f"no model {self.name!r} is in the zoo. {meant}`modelkeeper models` lists them."


class ZooUnusable(ModelKeeperError):
    """The zoo's catalog or its store cannot be opened, read or written."""

    code, status = "zoo_unusable", 503

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the zoo at {self.where} cannot be used: {self.problem}. {self.advice}"


class DiskFull(ZooUnusable):
    """There is no room for what was to be written: the disk is full, or a quota of it is used up."""

    code, status = "disk_full", 507


class CorruptWeights(ModelKeeperError):
    """The bytes in the store are not what was registered."""

    code, status = "corrupt_weights", 410

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(model, problem)
        self.model, self.problem = model, problem

    def __str__(self) -> str:
        return (
            f"the weights of model {self.model} are damaged: {self.problem}. Remove it, or restore its file."
        )


class InvalidMetric(ModelKeeperError):
    """How good a model is was not said, or cannot be so."""

    code, status = "invalid_metric", 422

    def __init__(self, name: str, problem: str, advice: str) -> None:
        super().__init__(name, problem, advice)
        self.name, self.problem, self.advice = name, problem, advice

    def __str__(self) -> str:
        return f"metric {self.name!r}: {self.problem}; {self.advice}."


class NotFinite(InvalidMetric):
    """How good a model is, is NaN or infinite: its training diverged."""

    code = "not_finite"


class CoordinatorUnreachable(ModelKeeperError):
    """The service did not answer, or answered nonsense."""

    code = "coordinator_unreachable"

    def __init__(self, url: str, problem: str, advice: str) -> None:
        super().__init__(url, problem, advice)
        self.url, self.problem, self.advice = url, problem, advice

    def __str__(self) -> str:
        return f"the coordinator at {self.url} cannot be used: {self.problem}. {self.advice}"


class NotAllowed(ModelKeeperError):
    """The token may not do this."""

    code, status = "not_allowed", 403

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"not allowed: {self.problem}. {self.advice}"


class NotAuthenticated(NotAllowed):
    """There is no token, or none that the service knows."""

    code, status = "not_authenticated", 401


class QuotaExceeded(ModelKeeperError):
    """A user keeps too much."""

    code, status = "quota_exceeded", 403

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"quota exceeded: {self.problem}. {self.advice}"


class TooManyRequests(QuotaExceeded):
    """A user asks too often, or the service is busy: it may be tried again after so many seconds."""

    code, status = "too_many_requests", 429

    def __init__(self, problem: str, advice: str, seconds: str) -> None:
        ModelKeeperError.__init__(self, problem, advice, seconds)
        self.problem, self.advice, self.seconds = problem, advice, seconds

    @property
    def wait(self) -> float:
        """Seconds after which it may be tried again."""
        return float(self.seconds)

    def __str__(self) -> str:
        return f"{super().__str__()} It may be tried again after {self.seconds} s."


class CannotLoadFactory(ModelKeeperError):
    """A `module:factory` on the command line gave no model."""

    code = "cannot_load_factory"

    def __init__(self, factory: str, problem: str) -> None:
        super().__init__(factory, problem)
        self.factory, self.problem = factory, problem

    def __str__(self) -> str:
        example = "my_models:resnet20 or my_models:make(width=64)"
        return f"{self.factory!r}: {self.problem}. Give module:factory, e.g. {example}."
