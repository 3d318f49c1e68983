"""What can be wrong with what was said or asked, with a zoo, or on the way to it?"""

from modelkeeper.errors.base import ModelKeeperError


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


class WrongStore(ZooUnusable):
    """The store is not the one that the catalog belongs to, so that what is missing there is not lost."""

    code, status = "wrong_store", 503


class StoreSilent(ZooUnusable):
    """The store of models' files does not answer in time."""

    code, status = "store_silent", 503


class ReadOnlyZoo(ZooUnusable):
    """Something was to be written to a zoo that may only be read here."""

    code, status = "read_only_zoo", 503


class CorruptCatalog(ZooUnusable):
    """The catalog does not say what was written into it: a disk or a program has changed its bytes."""

    code, status = "corrupt_catalog", 503


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


class UnreadableWeights(ModelKeeperError):
    """The file of a model cannot be read here, which says nothing of what it holds."""

    code, status = "unreadable_weights", 503

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(model, problem)
        self.model, self.problem = model, problem

    def __str__(self) -> str:
        return (
            f"the weights of model {self.model} cannot be read here: {self.problem}. "
            "Check who may read its folder."
        )


class InvalidSignature(ModelKeeperError):
    """What was signed of a model does not hold, or is not what the model is."""

    code, status = "invalid_signature", 422

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model, self.problem, self.advice = model, problem, advice

    def __str__(self) -> str:
        return f"the signature of model {self.model}: {self.problem}. {self.advice}"


class InvalidKey(ModelKeeperError):
    """A key cannot be used: it is not there, not safe, or no key."""

    code, status = "invalid_key", 422

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the key {self.where}: {self.problem}. {self.advice}"


class InvalidBackup(ModelKeeperError):
    """A backup cannot be made or used: it is not there, not whole, or not for this place."""

    code = "invalid_backup"

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the backup at {self.where}: {self.problem}. {self.advice}"


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


class InvalidBundle(ModelKeeperError):
    """A file of models from elsewhere is not what it should be."""

    code, status = "invalid_bundle", 422

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the bundle cannot be used: {self.where} {self.problem}. {self.advice}"


class CannotLoadFactory(ModelKeeperError):
    """A `module:factory` on the command line gave no model."""

    code = "cannot_load_factory"

    def __init__(self, factory: str, problem: str) -> None:
        super().__init__(factory, problem)
        self.factory, self.problem = factory, problem

    def __str__(self) -> str:
        example = "my_models:resnet20 or my_models:make(width=64)"
        return f"{self.factory!r}: {self.problem}. Give module:factory, e.g. {example}."
