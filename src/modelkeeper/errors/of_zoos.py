"""What can be wrong with what was said or asked, or with a zoo?"""

from modelkeeper.errors.base import ModelKeeperError


class NotInstalled(ModelKeeperError, ModuleNotFoundError):
    """A part of modelkeeper needs packages that are not installed: an extra brings them."""

    code, status = "not_installed", 500
    remedy = (
        'Install the extra that is named, where ModelKeeper is installed: `pip install "modelkeeper[zoo]"`. '
        "Without extras there is `modelkeeper.transfer` alone. Elsewhere install it from a clone, as "
        "docs/start.md says: what package indexes have by this name is another project."
    )

    def __init__(self, what: str, missing: tuple[str, ...], extra: str) -> None:
        super().__init__(what, missing, extra)
        self.what, self.missing, self.extra = what, missing, extra
        self.name = missing[0] if missing else None  # as of any ModuleNotFoundError

    def __str__(self) -> str:
        names = f"{', '.join(self.missing)}, which {'is' if len(self.missing) == 1 else 'are'} not installed"
        return f'{self.what} needs {names}: pip install "modelkeeper[{self.extra}]".'


class InvalidSetting(ModelKeeperError):
    """A setting has a value that cannot work."""

    code, status = "invalid_setting", 422
    remedy = (
        "Give a value that the message names. Settings come from arguments, then from variables "
        "(MODELKEEPER_...); `modelkeeper COMMAND --help` lists what a command takes."
    )

    def __init__(self, name: str, value: str, advice: str) -> None:
        super().__init__(name, value, advice)
        self.name, self.value, self.advice = name, value, advice

    def __str__(self) -> str:
        return f"{self.name} cannot be {self.value}: {self.advice}."


class UnknownAccount(InvalidSetting):
    """There is no such user, project or token."""

    code, status = "unknown_account", 404
    remedy = (
        "Look for it among those that are there: `modelkeeper user list`, `modelkeeper project list`, "
        "`modelkeeper token list`. The routes of a service name them by id."
    )


class AccountConflict(ModelKeeperError):
    """A user, project or token cannot be changed so while others are as they are."""

    code, status = "account_conflict", 409
    remedy = (
        "Do first what the message says: give another name, or, where the last administrator would go, "
        "make another with `modelkeeper token add`."
    )

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem, self.advice = problem, advice

    def __str__(self) -> str:
        return f"{self.problem}. {self.advice}"


class InvalidMeta(ModelKeeperError):
    """What was said of a model cannot be so."""

    code, status = "invalid_meta", 422
    remedy = (
        "Correct the field that is named: what `meta` may say is the same in Python, on the command line and "
        "over HTTP."
    )

    def __init__(self, field: str, value: str, advice: str) -> None:
        super().__init__(field, value, advice)
        self.field, self.value, self.advice = field, value, advice

    def __str__(self) -> str:
        return f"meta: {self.field} cannot be {self.value}: {self.advice}."


class ModelRefused(ModelKeeperError):
    """The zoo did not take a model: it would be of no use as a parent, or there is no room for it."""

    code, status = "model_refused", 409
    remedy = (
        "Train the model longer, check that its metric is right and on the same data as its peers', or say "
        "that it is for another task. A zoo without room for it needs more `capacity`."
    )

    def __init__(self, name: str, reason: str, advice: str) -> None:
        super().__init__(name, reason, advice)
        self.name, self.reason, self.advice = name, reason, advice

    def __str__(self) -> str:
        return f"{self.name!r} was not registered: {self.reason}. {self.advice}"


class UnknownModel(ModelKeeperError):
    """No model of the zoo is called that, or several are."""

    code, status = "unknown_model", 404
    remedy = (
        "List what there is (`modelkeeper models --state removed` and the like for what was), and give the "
        "id, or owner/name. Models of others that you may not see count as not there."
    )

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
    remedy = (
        "Check that the folder or URL is the right one, that you may read and write it, and that the catalog "
        "is no newer than this version. `modelkeeper verify` looks at all that is in it."
    )

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the zoo at {self.where} cannot be used: {self.problem}. {self.advice}"


class DiskFull(ZooUnusable):
    """There is no room for what was to be written: the disk is full, or a quota of it is used up."""

    code, status = "disk_full", 507
    remedy = (
        "Free some room: `modelkeeper remove` and `modelkeeper gc` work on a full disk. Set `capacity`, so "
        "that the zoo evicts before it fills the disk."
    )


class WrongStore(ZooUnusable):
    """The store is not the one that the catalog belongs to, so that what is missing there is not lost."""

    code, status = "wrong_store", 503
    remedy = "Give the --blobs (MODELKEEPER_BLOBS) that the catalog was made with. Nothing was changed."


class StoreSilent(ZooUnusable):
    """The store of models' files does not answer in time."""

    code, status = "store_silent", 503
    remedy = (
        "Check that the object store can be reached from here and is not overloaded. What was registered "
        "meanwhile waits in the spool; `modelkeeper sync` sends it."
    )


class CatalogSilent(ZooUnusable):
    """The database of the catalog does not answer in time."""

    code, status = "catalog_silent", 503
    remedy = (
        "Check that the database runs, is not stopped, and can be reached from here; all goes on then. "
        "What was registered meanwhile waits in the spool; `modelkeeper sync` sends it."
    )


class ShardsUnreachable(ZooUnusable):
    """What runs the shards of the search index does not answer."""

    code, status = "shards_unreachable", 503
    remedy = (
        "Check that the Ray cluster runs and that its address in --shards is right; without shards the "
        "service keeps the index itself."
    )


class ReadOnlyZoo(ZooUnusable):
    """Something was to be written to a zoo that may only be read here."""

    code, status = "read_only_zoo", 503
    remedy = (
        "Query it as it is, ask its owner to register for you, or copy it with `modelkeeper backup` and "
        "`restore`."
    )


class CorruptCatalog(ZooUnusable):
    """The catalog does not say what was written into it: a disk or a program has changed its bytes."""

    code, status = "corrupt_catalog", 503
    remedy = (
        "Run `modelkeeper verify`, then `modelkeeper restore` from the last backup whose snapshot is whole "
        "(docs/recovery.md). Have the disk checked."
    )


class CorruptWeights(ModelKeeperError):
    """The bytes in the store are not what was registered."""

    code, status = "corrupt_weights", 410
    remedy = (
        "Remove the model, or put its file back from a backup: `modelkeeper gc --verify` takes repaired "
        "models back. Queries pass it over meanwhile."
    )

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
    remedy = (
        "See who may read the model's folder: the user that runs this process must. Queries pass the model "
        "over meanwhile."
    )

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
    remedy = (
        "Do not use the model. Ask who signed it for their key and for the file; `modelkeeper key list` "
        "shows whom you trust."
    )

    def __init__(self, model: str, problem: str, advice: str) -> None:
        super().__init__(model, problem, advice)
        self.model, self.problem, self.advice = model, problem, advice

    def __str__(self) -> str:
        return f"the signature of model {self.model}: {self.problem}. {self.advice}"


class InvalidKey(ModelKeeperError):
    """A key cannot be used: it is not there, not safe, or no key."""

    code, status = "invalid_key", 422
    remedy = (
        "Make one with `modelkeeper key new`, let nobody else read its file (chmod 600), and name it in "
        "MODELKEEPER_KEY."
    )

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the key {self.where}: {self.problem}. {self.advice}"


class InvalidBackup(ModelKeeperError):
    """A backup cannot be made or used: it is not there, not whole, or not for this place."""

    code = "invalid_backup"
    remedy = (
        "Name the folder that `modelkeeper backup` wrote; `modelkeeper restore FOLDER --list` names its "
        "snapshots. Restore into a zoo that holds no models."
    )

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the backup at {self.where}: {self.problem}. {self.advice}"


class InvalidMetric(ModelKeeperError):
    """How good a model is was not said, or cannot be so."""

    code, status = "invalid_metric", 422
    remedy = (
        "Say how good the model is: `accuracy` from 0 to 1, or a metric with its direction "
        "(`elo=1510:higher`). Leave out what is no measure of quality."
    )

    def __init__(self, name: str, problem: str, advice: str) -> None:
        super().__init__(name, problem, advice)
        self.name, self.problem, self.advice = name, problem, advice

    def __str__(self) -> str:
        return f"metric {self.name!r}: {self.problem}; {self.advice}."


class NotFinite(InvalidMetric):
    """How good a model is, is NaN or infinite: its training diverged."""

    code = "not_finite"
    remedy = (
        "Register a checkpoint from before the training diverged: what is NaN or infinite cannot be compared."
    )


class InvalidBundle(ModelKeeperError):
    """A file of models from elsewhere is not what it should be."""

    code, status = "invalid_bundle", 422
    remedy = (
        "Ask for the bundle anew, and compare its checksum with the sender's: `modelkeeper import --dry-run` "
        "reads it without taking anything in."
    )

    def __init__(self, where: str, problem: str, advice: str) -> None:
        super().__init__(where, problem, advice)
        self.where, self.problem, self.advice = where, problem, advice

    def __str__(self) -> str:
        return f"the bundle cannot be used: {self.where} {self.problem}. {self.advice}"


class CannotLoadFactory(ModelKeeperError):
    """A `module:factory` on the command line gave no model."""

    code = "cannot_load_factory"
    remedy = (
        "Give module:name or module:name(width=64), with arguments as Python literals, from the folder where "
        "the module lies."
    )

    def __init__(self, factory: str, problem: str) -> None:
        super().__init__(factory, problem)
        self.factory, self.problem = factory, problem

    def __str__(self) -> str:
        example = "my_models:resnet20 or my_models:make(width=64)"
        return f"{self.factory!r}: {self.problem}. Give module:factory, e.g. {example}."
