"""Every error modelkeeper raises on purpose.

ModelKeeperError
├── InvalidGraph         a graph breaks its own rules, or its bytes are no graph
├── UnknownFramework     no front end takes this model
├── InvalidModelFile     a file holds no model, or one that breaks the rules of its format
├── CannotDescribe       the model did not run on the inputs there were
├── NoProgram            a model cannot be written down as a program
├── InvalidProgram       a program breaks its own rules, or cannot run on what it is given
├── CannotCalibrate      examples or models do not serve to calibrate
├── CannotMaterialise    nothing says how a model without memory is initialised
├── CannotProbe          batches, a loss or an optimizer do not serve to let starts race
├── CannotShare          the processes that train a model cannot be told from how it is divided
├── RanksApart           not all processes that train a model together have called
├── InvalidWeights       weights do not fit the model they were meant for
├── InvalidPairs         an alignment names layers that are not there, or one of them twice
├── CannotGather         a tensor cannot be filled from another one in the way that was asked for
├── TooLargeToMatch      a graph has more layers than an alignment takes
├── TooLongToPlan        there was no time to plan what a parent lends
├── InvalidIndex         the files of a search index cannot be used
├── NotInstalled         a part needs packages that an extra brings
├── InvalidSetting       a setting has a value that cannot work
│   └── UnknownAccount   there is no such user, project or token
├── AccountConflict      a user, project or token cannot be changed so while others are as they are
├── InvalidMeta          what was said of a model cannot be so
├── ModelRefused         the zoo did not take a model
├── UnknownModel         no model of the zoo is called that
├── ZooUnusable          the zoo's catalog or its store cannot be opened, read or written
│   ├── DiskFull         there is no room for what was to be written
│   ├── WrongStore       the store is not the one that the catalog belongs to
│   ├── CatalogSilent    the database of the catalog does not answer in time
│   ├── StoreSilent      the store does not answer in time
│   ├── ShardsUnreachable  what runs the shards of the search index does not answer
│   ├── ReadOnlyZoo      something was to be written to a zoo that may only be read here
│   └── CorruptCatalog   the catalog does not say what was written into it
├── CorruptWeights       the bytes in the store are not what was registered
├── UnreadableWeights    the file of a model cannot be read here
├── InvalidSignature     what was signed of a model does not hold, or is not what it is
├── InvalidKey           a key is not there, not safe, or no key
├── InvalidBackup        a backup is not there, not whole, or not for this place
├── InvalidBundle        a file of models from elsewhere is not what it should be
├── InvalidMetric        how good a model is was not said, or cannot be so
│   └── NotFinite        it is NaN or infinite: the training diverged
├── CoordinatorUnreachable  the service did not answer, or answered nonsense
├── NotReady             the service cannot take requests yet, or no longer
├── NotAllowed           the token may not do this
│   └── NotAuthenticated  there is no token, or none that the service knows
├── QuotaExceeded        a user keeps too much
│   └── TooManyRequests  a user asks too often, or the service is busy: waiting helps
└── CannotLoadFactory    a `module:factory` on the command line gave no model

A message says what happened, with the value that caused it, and then what to do. All fields go to
`Exception.__init__`, which keeps every error picklable, as worker processes need. Programs decide by the
class, or by its `code` and `status`; never by a message. The docstring of a class is the cause, its `remedy`
what to do, and `kinds()` lists them all: the page of trouble shooting (`PAGE`) is made of that.
"""

from modelkeeper.errors.base import PAGE, ModelKeeperError, kinds
from modelkeeper.errors.of_models import (
    CannotCalibrate,
    CannotDescribe,
    CannotGather,
    CannotMaterialise,
    CannotProbe,
    CannotShare,
    InvalidGraph,
    InvalidIndex,
    InvalidModelFile,
    InvalidPairs,
    InvalidProgram,
    InvalidWeights,
    NoProgram,
    RanksApart,
    TooLargeToMatch,
    TooLongToPlan,
    UnknownFramework,
)
from modelkeeper.errors.of_services import (
    CoordinatorUnreachable,
    NotAllowed,
    NotAuthenticated,
    NotReady,
    QuotaExceeded,
    TooManyRequests,
)
from modelkeeper.errors.of_zoos import (
    AccountConflict,
    CannotLoadFactory,
    CatalogSilent,
    CorruptCatalog,
    CorruptWeights,
    DiskFull,
    InvalidBackup,
    InvalidBundle,
    InvalidKey,
    InvalidMeta,
    InvalidMetric,
    InvalidSetting,
    InvalidSignature,
    ModelRefused,
    NotFinite,
    NotInstalled,
    ReadOnlyZoo,
    ShardsUnreachable,
    StoreSilent,
    UnknownAccount,
    UnknownModel,
    UnreadableWeights,
    WrongStore,
    ZooUnusable,
)

__all__ = [
    "PAGE",
    "AccountConflict",
    "CannotCalibrate",
    "CannotDescribe",
    "CannotGather",
    "CannotLoadFactory",
    "CannotMaterialise",
    "CannotProbe",
    "CannotShare",
    "CatalogSilent",
    "CoordinatorUnreachable",
    "CorruptCatalog",
    "CorruptWeights",
    "DiskFull",
    "InvalidBackup",
    "InvalidBundle",
    "InvalidGraph",
    "InvalidIndex",
    "InvalidKey",
    "InvalidMeta",
    "InvalidMetric",
    "InvalidModelFile",
    "InvalidPairs",
    "InvalidProgram",
    "InvalidSetting",
    "InvalidSignature",
    "InvalidWeights",
    "ModelKeeperError",
    "ModelRefused",
    "NoProgram",
    "NotAllowed",
    "NotAuthenticated",
    "NotFinite",
    "NotInstalled",
    "NotReady",
    "QuotaExceeded",
    "RanksApart",
    "ReadOnlyZoo",
    "ShardsUnreachable",
    "StoreSilent",
    "TooLargeToMatch",
    "TooLongToPlan",
    "TooManyRequests",
    "UnknownAccount",
    "UnknownFramework",
    "UnknownModel",
    "UnreadableWeights",
    "WrongStore",
    "ZooUnusable",
    "kinds",
]
