"""What a training script talks to.

    client = ModelKeeperClient("zoo/")
    warmed, meta = client.query_for_model(model, meta={"data": "Flowers102", "task": "classification"})
    accuracy = train(warmed)                       # warmed is model: its weights were written in place
    client.register_model(warmed, meta={"data": "Flowers102", "task": "classification", "accuracy": accuracy})
    client.stop()

A training is never stopped or spoiled by the keeper: if a zoo cannot be reached or read, the client says so
by a warning, and the model starts as it was. Wrong use (a typo in `meta`, no accuracy) is an error at once,
since nobody else could notice it. A client can be pickled: it goes by its address, and opens the zoo anew.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from modelkeeper.connection import Connection
from modelkeeper.faults import WRONG_REGISTRATION, KeeperWarning, warn
from modelkeeper.frontends import Frontend, frontend_for
from modelkeeper.frontends.abilities import materialise, team_of
from modelkeeper.lineage import descended, name_of
from modelkeeper.logs import logger
from modelkeeper.meta import read_query, read_registration, read_training
from modelkeeper.policy.curves import Curve
from modelkeeper.policy.objective import by_name
from modelkeeper.run import EVERY, Run, identity_of
from modelkeeper.signing.trusted import Trusted
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.evidence import pack
from modelkeeper.zoo.records import Record

if TYPE_CHECKING:
    from modelkeeper.checking import Checked

__all__ = ["KeeperWarning", "ModelKeeperClient", "Run"]

M = TypeVar("M")
T = TypeVar("T")
_log = logger()


class ModelKeeperClient(Connection):
    """Warm starts from one zoo, and registrations into it. Also a context manager.

    Args:
        uri: A folder; ":memory:" for a zoo that ends with the client; or the address of a coordinator:
            "10.0.0.7", "host:port" or "http(s)://...". Default: the variable MODELKEEPER_URI, or
            ~/.modelkeeper.
        on_error: What happens when the keeper fails: "cold" warns and lets training start as it would have
            without a keeper; "raise" raises.
        user: Who registers. Default: the name that you are logged in as. A coordinator with users knows
            it by the token.
        token: What a coordinator knows you by. Default: the variable MODELKEEPER_TOKEN.
        settings: Of a zoo in this process: capacity, policy, minimum_similarity ...; of a coordinator
            elsewhere: timeout (seconds), spool; of both: patience, sandbox (see `Settings`).

    Raises:
        InvalidSetting: A setting has a value that cannot work.
    """

    # long: what a user may ask for, and the words that explain it.
    def query_for_model(
        self,
        model: M,
        meta: Mapping[str, Any] | None = None,
        *,
        example_inputs: Any = None,
        dry_run: bool = False,
        calibrate: Any = None,
        labels: Any = None,
        progress: bool = False,
        probe: Any = None,
        loss: Callable[[Any, Any], Any] | None = None,
        optimizer: Any = None,
        probe_steps: int | None = None,
        probe_seconds: float | None = None,
        frozen: str = "keep",
        trained: str = "warn",
    ) -> tuple[M, Answer]:
        """Load the most fitting known weights into `model`, in place.

        A cold start is an answer, not an error: if nothing in the zoo is near enough, the model stays as it
        was and `parent` is None, so a training script needs no branch.

        Args:
            model: A model of a known framework. Its architecture, dtypes and devices are not changed.
            meta: What it will be trained for: data, task, tags; and which parents it would take: parents
                (names or ids to prefer), exclude, most_parents (so many may lend, side by side: the model
                then starts as their mean), minimum_similarity, policy.
            example_inputs: What the model runs on, if that cannot be found from the model itself.
            dry_run: Find and plan, but change nothing.
            calibrate: Examples of the data it will be trained on (tensors, pairs (x, y), dicts, a
                DataLoader): where the transfer is not exact, its layers are fitted to what the parent
                computes on them. They stay on this machine; `modelkeeper.transfer` says more.
            labels: Of the examples, for a head that the parent cannot teach.
            progress: Show a bar while layers are fitted.
            probe: Labelled batches on which several starts race, to do no harm: warm, calibrated, shrunk,
                from a second parent that is about as similar, and cold. The model gets the weights that the
                winner started with; `modelkeeper.transfer` says more of this and of the next four.
            loss: Of the model's outputs and the labels. Default: the outputs' own loss (Hugging Face).
            optimizer: What it will be trained with, or a function that makes one of parameters.
            probe_steps: Training steps of all starts together. Default: 100.
            probe_seconds: The race ends after about so long. Default: no limit.
            frozen: What becomes of tensors that do not require gradients (Keras: of layers that are not
                trainable), and of the statistics beside them: "keep" leaves them as they are, "replace" does
                not. A model that is frozen altogether starts as it is.
            trained: What becomes of a model that does not look freshly initialised: its weights are replaced,
                with a warning ("warn") or without ("replace"); or it starts as it is ("keep").

        Returns:
            The model, and what was done: parent, similarity, what was copied, widened, narrowed, inserted
            and kept, whether that is exact, the runners-up and why they lost.

        Raises:
            InvalidMeta: A key of `meta` is unknown, or a value cannot be so.
            InvalidSetting: `probe_steps`, `probe_seconds`, `frozen` or `trained` cannot be so.
            UnknownFramework: `model` comes from a framework without a front end.
        """
        from modelkeeper.coordinator.source import ZooSource
        from modelkeeper.frontends.fit_tasks import Budget
        from modelkeeper.warmstart.pipeline import Request, kept, replaced, signs_of_training, start
        from modelkeeper.warmstart.race.rules import STEPS
        from modelkeeper.warmstart.race.starts import Probe

        trusted = Trusted.of(self.settings.trusted)
        query, steps = read_query(meta), STEPS if probe_steps is None else probe_steps
        frontend = frontend_for(model)
        request = Request(
            frontend,
            model,
            example_inputs,
            calibrate=calibrate,
            labels=labels,
            budget=Budget(sandbox=self.settings.sandbox),
            progress=progress,
            probe=None if probe is None else Probe(probe, loss, optimizer, steps, probe_seconds),
            foreign=not dry_run,
        )

        def ask(frontend: Frontend) -> Answer:
            nonlocal model
            with self.faults.guard("The model starts cold") as trouble:
                asked = dataclasses.replace(request, frontend=frontend)
                outcome = start(asked, ZooSource(self.coordinator, query, dry_run, trusted), self.faults)
                model = outcome.model
                final = outcome.final
                self._tell(outcome.gains, final)
                return final
            return _helpless(trouble)

        signs = ""
        with self.faults.guard("The model starts cold") as trouble:
            signs = signs_of_training(frontend, model, trained)
            if signs and trained == "keep":
                return model, Answer(reason=f"the model is trained already: {signs}", dry_run=dry_run)
            request = dataclasses.replace(request, frozen=kept(frontend, model, frozen))
            query = msgspec.structs.replace(query, frozen=tuple(sorted(request.frozen)))
            team = team_of(request.frontend, model)
            answer = ask(request.frontend) if team is None else team.write(ask, self.settings.patience)
        answer = _helpless(trouble) if trouble else answer
        if not dry_run and answer.cold:
            with self.faults.guard("The model has no weights") as trouble:
                materialise(frontend, model)
            answer = msgspec.structs.replace(answer, warnings=(*answer.warnings, *trouble))
            self._starts.remember_cold(model, answer)
        elif not dry_run:
            self._starts.remember(model, answer)
        if signs and not answer.cold:
            answer = msgspec.structs.replace(answer, warnings=(*answer.warnings, replaced(signs, dry_run)))
            warn(answer.warnings[-1])
        return model, answer

    def register_model(
        self,
        model: Any,
        meta: Mapping[str, Any],
        *,
        example_inputs: Any = None,
        evidence: tuple[Any, Any] | None = None,
        curve: Curve | None = None,
    ) -> Record | None:
        """Take a trained model into the zoo, for others to start from.

        Args:
            model: A trained model. It is not changed.
            meta: data, task, tags; accuracy, or metrics={"val_loss": 0.3, ...}, or metric={"name", "value",
                "lower_is_better"}; name, project, visibility; parent (an id or a name, or a list of several),
                if it is not what `query_for_model` found for this model.
            example_inputs: What the model runs on, if that cannot be found from the model itself.
            evidence: Held-out inputs and labels (numbers of classes), at most 4 MiB, on which anyone who may
                see the model can check what is claimed of it (`check`). They are kept beside its weights.
            curve: How the training went, as `policy.curves.Drawing` draws it. `start` draws it by itself.

        Returns:
            Its record; None if the zoo did not take it (a warning says why).

        Raises:
            InvalidMeta, InvalidMetric: `meta` cannot be so, or does not say how good the model is. NaN, in
                the metric or in the weights, is an outcome of a training: a warning says so.
            UnknownFramework: `model` comes from a framework without a front end.
        """
        started = self._starts.recall(model)

        def register(frontend: Frontend) -> Record | None:
            with self.faults.guard("The model was not registered", WRONG_REGISTRATION):
                registration = read_registration(meta, name_of(frontend, model))
                registration = msgspec.structs.replace(registration, curve=curve)
                if started is not None:
                    registration = descended(registration, started)
                attached = pack(*evidence) if evidence is not None else b""
                described = self.describe(model, example_inputs)
                return self.keep(described, frontend.read(model), registration, attached)
            return None

        with self.faults.guard("The model was not registered", WRONG_REGISTRATION):
            return self.once(model, register)
        return None

    def check(self, name: str, inputs: Any = None, labels: Any = None) -> "Checked":
        """Compare the accuracy that is claimed of a model with what it does on examples that you trust.

        Without examples of yours it is checked on the evidence that it was registered with, which its owner
        chose. What comes out is told to the coordinator, and counts for whoever else is offered the model.
        See `modelkeeper.checking.check` for arguments and errors.
        """
        from modelkeeper.checking import check

        sandbox = self.settings.sandbox
        return check(self.coordinator, name, inputs, labels, sandbox=sandbox, user=self.user)

    # long: what a user may ask for, and the words that explain it.
    def start(
        self,
        model: M,
        meta: Mapping[str, Any] | None = None,
        *,
        key: str = "",
        resumed: bool = False,
        monitor: str = "",
        mode: str = "auto",
        keep: str = "best",
        every: float = EVERY,
        example_inputs: Any = None,
        **query: Any,
    ) -> Run[M]:
        """Begin a training: load the most fitting known weights, and give what its progress is reported to.

            run = client.start(model, {"data": "Flowers102", "task": "classification"})
            for epoch in range(90):
                ...
                run.report(accuracy=accuracy, step=epoch, model=model)
            run.finish()

        Args:
            model: As for `query_for_model`.
            meta: Keys for queries and for registrations.
            key: What the training is called by whoever runs it. Trainings of the same key and user are one:
                what they report takes the place of what was reported before. Default: it is one of its own.
            resumed: It goes on from a checkpoint: do not ask, leave the model as it is.
            monitor: The metric that reports are compared by. Default: accuracy; else the only metric; else
                the loss.
            mode: "min" or "max", where the name of the metric does not tell.
            keep: Of the reports with the model, keep the "best" or the "last".
            every: Seconds between two versions that are written while the training goes on.
            example_inputs: As for `query_for_model`.
            query: Further arguments of `query_for_model`: calibrate, labels, probe ...

        Raises:
            InvalidMeta, InvalidSetting: `meta` or an argument cannot be so: said before the training.
            UnknownFramework: `model` comes from a framework without a front end.
        """
        asked, registered = read_training(meta)
        objective = by_name(monitor, mode) if monitor else None
        answer = Answer(reason="not asked: the training goes on from a checkpoint")
        if not resumed:
            _, answer = self.query_for_model(model, asked, example_inputs=example_inputs, **query)
        return Run(
            self,
            model,
            answer,
            registered,
            identity=identity_of(key),
            objective=objective,
            keep=keep,
            every=every,
            example_inputs=example_inputs,
            speaks=self._speaks(model),
        )

    @contextlib.contextmanager
    def training(
        self, model: M, meta: Mapping[str, Any] | None = None, *, example_inputs: Any = None, **more: Any
    ) -> Iterator[Run[M]]:
        """Query on entry, register on a clean exit with what `run.report` was told.

            with client.training(model, {"data": "Flowers102", "task": "classification"}) as run:
                for epoch in range(90):
                    ...
                    run.report(accuracy=accuracy, model=model)

        If the block raises, what was reported with the model is kept as unfinished, else nothing. Arguments
        are those of `start`.
        """
        run = self.start(model, meta, example_inputs=example_inputs, **more)
        try:
            yield run
        except BaseException:
            run.stop()
            raise
        run.finish()


def _helpless(trouble: list[str]) -> Answer:
    """The answer when the keeper failed: a cold start."""
    reason = trouble[0].removesuffix(".")  # a report ends the sentence
    return Answer(reason=f"the keeper could not help: {reason}", warnings=tuple(trouble))
