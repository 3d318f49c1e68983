"""What does a front end promise? The seam between models of a framework and everything else.

    Frontend   required: takes, trace, read, load, example. With these a model can be described, registered,
               matched, and started from another one
    Runner     optional (`frontend.runner`): runs models, for calibrating, for programs, and to compare two
    Trials     optional (`frontend.trials`): trains copies of a model, for races between several starts

What a front end may be able to do besides is in `abilities`. Who wants a runner or trials asks for them with
`runner_of` or `trials_of`, and is told what to do if there are none. `modelkeeper.testing` holds a suite of
tests that every front end should pass.

For all of them:

threads   Calls with different models may come from several threads at once. Nobody calls with the same model
          from two threads. What other threads draw meanwhile, and every setting of the process, is as if
          there had been no call.
traces    A model that is traced, read, recorded, compared or copied is afterwards as it was: weights, modes,
          hooks, caches. So are the random generators that a user may have seeded, after every call; only
          what a model itself draws from Python's or NumPy's, among several threads, is drawn.
errors    What is raised on purpose is a ModelKeeperError. What the user's own code raises (a forward pass, a
          loss) comes as the error that the method names, with the first line of the original in its message.
names     Tensors go by the names and stand in the axis order that the graph of the model gives them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from modelkeeper.errors import CannotCalibrate, CannotProbe

if TYPE_CHECKING:
    from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, Progress
    from modelkeeper.tracing.trace import Trace
    from modelkeeper.weights import Array

M = TypeVar("M")
FEWEST_BATCHES = 4  # that a race takes; `Trials.labelled` sees to it


class Frontend(Protocol):
    """One framework: its models become graphs, weights come out of them and go into them."""

    @property
    def name(self) -> str:
        """The framework, as graphs of its models name it: "torch"."""

    @property
    def runner(self) -> "Runner | None":
        """What runs models; None: this front end cannot."""

    @property
    def trials(self) -> "Trials | None":
        """What trains copies of models; None: this front end cannot."""

    def takes(self, model: object) -> bool:
        """Is this a model of the framework? Never raises, and is quick: any object may come."""

    def trace(self, model: Any, example_inputs: Any = None) -> "Trace":
        """What the model does with its inputs, step by step, as plain data over `graph.vocabulary`.

        The same model gives the same trace. Tensors stand in the axis order that `read` gives them in.

        Args:
            model: Is not changed.
            example_inputs: Of these only shapes and dtypes count. None: found from the model itself.

        Raises:
            CannotDescribe: The model did not run on the inputs there were; the message says what to pass.
        """

    def read(self, model: Any) -> "Iterator[tuple[str, Array]]":
        """Every stored tensor by name, each once: tied tensors go by their first name.

        Arrays may share memory with the model: whoever keeps one while the model changes copies it.

        Raises:
            InvalidWeights: A tensor has no plain numbers.
        """

    def load(self, model: M, weights: Mapping[str, Any]) -> M:
        """Write weights into a model, all or nothing, and return the model that has them.

        In place where the framework can, so that optimizers built on the model stay valid; then it is the
        model that was given. Otherwise a new one is returned, and the one that was given is as it was.
        Tensors that `weights` does not name are left alone; dtypes and devices of the model are kept. A model
        without memory gets it, and initial values for what `weights` does not name: see `Deferring`.

        Raises:
            InvalidWeights: A name is unknown or given twice, or a shape or kind of number does not fit. The
                model is then unchanged.
        """

    def example(self, shape: Iterable[int], dtype: str = "float32") -> Any:
        """Something to pass as an example input: its shape and dtype are all that counts."""


class Examples(Protocol):
    """Examples to calibrate with, as a runner collected them."""

    @property
    def inputs(self) -> Any:
        """What a model takes: see `Runner.example_of`."""

    def __len__(self) -> int: ...


class Program(Protocol):
    """What a model computes, to be run without its code."""

    def to_bytes(self) -> bytes:
        """As it is kept beside the model's weights."""


class Runner(Protocol):
    """Runs models of a framework, and programs that were recorded of them."""

    def collect(self, batches: Any, labels: Any, most: int) -> Examples:
        """The first `most` examples, from whatever a training script has. What it collected it takes again.

        Raises:
            CannotCalibrate: There are too few, they hold NaN or infinities, or are no tensors.
        """

    def example_of(self, model: Any, inputs: Any) -> Any:
        """Example inputs to describe or record a model on, from those of examples or of a labelled batch."""

    def record_program(self, model: Any, example_inputs: Any = None) -> Program:
        """A program that computes what the model computes.

        Raises:
            NoProgram: It cannot be written down as one.
            CannotDescribe: The model did not run on the inputs there were.
        """

    def read_program(self, data: bytes) -> Program:
        """A program from its bytes, which may come from anyone: it is checked, and again when it runs.

        Raises:
            InvalidProgram: It breaks its own rules.
        """

    def calibrate(
        self,
        child: Any,
        planner: "FitPlanner",
        parent: Any,
        tensors: "Mapping[str, Array]",
        examples: Any,
        *,
        budget: "Budget",
        progress: "Progress | None" = None,
    ) -> "Calibration":
        """Fit the layers of a child to what its parent computes, in place, if held-out examples say it helps.

        Args:
            child: The model, with the weights of a plan in it.
            planner: Says what is to be fitted, when the parent's units are ranked.
            parent: The parent, or a program of it.
            tensors: The parent's, by name.
            examples: What `collect` gave.
            budget: How much it may take.
            progress: Called before each layer.

        Raises:
            CannotCalibrate: The examples do not serve. The child is unchanged, as after any other error.
            NoProgram: The child or the parent cannot be taken apart layer by layer.
            InvalidProgram: The parent's program does not run on the examples.
        """

    def difference(self, first: Any, second: Any, example_inputs: Any = None) -> float:
        """By how much two models differ on random inputs, relative to how much their outputs vary.

        A list of first ones stands for the mean of what they compute.
        """


class Batch(Protocol):
    """A labelled batch, as `Trials.labelled` gives it. A runner's `collect` takes it, too."""

    @property
    def inputs(self) -> Any:
        """What the model takes."""

    @property
    def labels(self) -> Any:
        """What should come of it."""


class Trial(Protocol):
    """A copy of a model, in training."""

    def step(self, batch: Batch) -> float:
        """The loss of a batch, and then a training step on it, unless the loss is no number.

        The n-th steps of all trials draw the same random numbers (dropout), whatever was drawn before.

        Raises:
            CannotProbe: The step fails.
        """


class Trials(Protocol):
    """Makes copies of a model and trains them. The model, its optimizer and its mode are never touched."""

    def labelled(self, batches: Any, most: int) -> Sequence[Batch]:
        """The first batches with their labels, at least FEWEST_BATCHES.

        Raises:
            CannotProbe: They have no labels, are too few, or are no tensors.
        """

    def duplicate(self, model: Any) -> Any:
        """A copy of a model that shares no memory with it.

        Raises:
            CannotProbe: It cannot be copied.
        """

    def trial(self, model: Any, weights: Mapping[str, Any], loss: Any, optimizer: Any) -> Trial:
        """A copy of the model with these weights and an optimizer without a past, ready to train.

        Args:
            model: What `weights` does not name is as the model has it.
            weights: The start.
            loss: Of outputs and labels, to be differentiated. None: the outputs' own.
            optimizer: One that was built on the model, or what makes one. None: the front end's choice.

        Raises:
            CannotProbe: The model cannot be copied, or there is no optimizer.
        """


def runner_of(frontend: Frontend) -> Runner:
    """The front end's runner, to calibrate with.

    Raises:
        CannotCalibrate: It has none.
    """
    if frontend.runner is None:
        problem = f"the front end for {frontend.name} does not run models"
        raise CannotCalibrate(problem, "Leave calibrate= out: the model then gets the plain weights")
    return frontend.runner


def trials_of(frontend: Frontend) -> Trials:
    """The front end's trials, to let starts race.

    Raises:
        CannotProbe: It has none.
    """
    if frontend.trials is None:
        problem = f"the front end for {frontend.name} does not train models"
        raise CannotProbe(problem, "Leave probe= out: the model then starts warm, unprobed")
    return frontend.trials
