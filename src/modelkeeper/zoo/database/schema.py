"""How do records lie in the catalog's database? Tables, and the version they are at.

The tables here are what the queries are written with; the migrations beside (`migrations/versions`) are what
makes them, step by step, in databases that exist. A test holds the two together. Nothing here is particular
to one kind of database.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

VERSION = "0018"  # of the newest migration

CHANGES, ACCOUNTS = "changes", "accounts"  # what the clock counts

metadata = MetaData()

# SQLite counts by itself only in columns of just this type.
_KEY = BigInteger().with_variant(Integer, "sqlite")

models = Table(
    "models",
    metadata,
    Column("key", _KEY, primary_key=True, autoincrement=True),
    Column("id", String(16), nullable=False, unique=True),
    Column("attempt", String(16), nullable=False),  # names its folder, beside its id
    Column("name", String(200), nullable=False, index=True),
    Column("skeleton", String(200), nullable=False),  # of names that look alike, the same
    # Names are labels; who it belongs to, is the id. "": a zoo without users, or nobody any more.
    Column("owner", String(200), nullable=False, index=True),
    Column("owner_id", String(16), nullable=False, index=True),
    Column("project", String(200), nullable=False),
    Column("project_id", String(16), nullable=False),
    Column("visibility", String(16), nullable=False),
    Column("data", String(200), nullable=False),
    Column("fold", String(200), nullable=False),
    Column("task", String(200), nullable=False),
    Column("tags", JSON, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("metric", String(200), nullable=False),
    Column("value", Double),
    Column("lower_is_better", Boolean, nullable=False),
    Column("framework", String(40), nullable=False),
    Column("parameters", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("fingerprint", String(64), nullable=False, index=True),
    Column("graph", String(64), nullable=False, index=True),
    Column("checksum", String(64), nullable=False),
    Column("program", String(64), nullable=False),
    Column("evidence", String(64), nullable=False),
    Column("signer", String(64), nullable=False, index=True),
    Column("licence", String(200), nullable=False),
    Column("published", Boolean, nullable=False),
    Column("origin", String(200), nullable=False),
    Column("parent", String(16), nullable=False, index=True),
    Column("more_parents", JSON, nullable=False),
    Column("similarity", Double),
    Column("run", String(16), nullable=False, index=True),
    Column("finished", Boolean, nullable=False),
    Column("created", Double, nullable=False),
    Column("last_used", Double, nullable=False),
    Column("hits", BigInteger, nullable=False),
    Column("pinned", Boolean, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("twin", String(16), nullable=False, index=True),
    Column("twin_similarity", Double, nullable=False),
    # Of the fields that `seals` names, so that a bit that flips on the disk is noticed.
    Column("seal", String(40), nullable=False),
    # The clock's value when the record last appeared in, or left, what can be searched.
    Column("changed", BigInteger, nullable=False, index=True),
    Index("models_peers", "task", "data", "state"),
    Index("models_created", "created", "key"),
    Index("models_skeleton", "skeleton", "name"),
)

tags = Table(
    "tags",
    metadata,
    Column("key", _KEY, ForeignKey("models.key", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(200), primary_key=True),
    Index("tags_tag", "tag"),
)

# All parents of each model, to be followed in both directions; the record holds them in order, too.
parents = Table(
    "parents",
    metadata,
    Column("key", _KEY, ForeignKey("models.key", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("parent", String(16), nullable=False),
    Index("parents_parent", "parent"),
)

# What services counted in each minute since 1970: see `samples`.
samples = Table(
    "samples",
    metadata,
    Column("minute", BigInteger, primary_key=True, autoincrement=False),
    Column("name", String(80), primary_key=True),
    Column("value", Double, nullable=False),
    sqlite_with_rowid=False,
)

# How trainings started: see `starts`.
starts = Table(
    "starts",
    metadata,
    Column("number", _KEY, primary_key=True, autoincrement=True),
    Column("id", String(16), nullable=False, unique=True),
    Column("at", Double, nullable=False, index=True),
    Column("user", String(200), nullable=False),
    Column("user_id", String(16), nullable=False),
    Column("child", String(64), nullable=False),  # a fingerprint
    Column("task", String(200), nullable=False),
    Column("data", String(200), nullable=False),
    Column("parent", String(16), nullable=False, index=True),  # the first; "": a cold start
    Column("model", String(16), nullable=False, index=True),  # what it was registered as
    Column("body", Text, nullable=False),  # JSON
    Column("race", Text),  # likewise; None: nobody told
)

# How trainings went, of models that reported it.
curves = Table(
    "curves",
    metadata,
    Column("key", _KEY, ForeignKey("models.key", ondelete="CASCADE"), primary_key=True),
    Column("metric", String(200), nullable=False),
    Column("lower_is_better", Boolean, nullable=False),
    Column("points", LargeBinary, nullable=False),  # JSON, compressed with zlib
)

# Models of one architecture, written with the same names, share one row.
graphs = Table(
    "graphs",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("graph", LargeBinary, nullable=False),  # JSON, compressed with zlib
    Column("prepared", LargeBinary, nullable=False),
    Column("seal", String(40), nullable=False),  # of what was prepared; the digest is that of the graph
)

events = Table(
    "events",
    metadata,
    Column("number", _KEY, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False, index=True),
    Column("action", String(40), nullable=False),
    Column("model", String(16), nullable=False, index=True),
    Column("user", String(200), nullable=False),
    Column("detail", Text, nullable=False),
    Column("data", JSON, nullable=False),
)

# `changes`: who changes what can be searched counts it up first, and so waits for whoever did before: the
# order of numbers is the order of commits, which a database's own sequence does not promise. `accounts`: of
# users, projects and tokens.
clock = Table(
    "clock",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# Who is writing the files of a model right now? Nobody else touches such a folder; see `leases`.
leases = Table(
    "leases",
    metadata,
    Column("folder", String(80), primary_key=True),
    Column("holder", String(200), nullable=False),  # a machine and a process, for people
    Column("until", Double, nullable=False),  # by the clock of the database, where it has one
)

# Files that are being sent to a store that is not on one machine, and what of them lies where; see `parts`.
uploads = Table(
    "uploads",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("owner", String(200), nullable=False, index=True),
    Column("attempt", String(16), nullable=False),  # of announcements under one id, which
    Column("bytes", BigInteger, nullable=False),  # that it takes up, all of it
    Column("text", LargeBinary, nullable=False),  # what was said of it
    Column("arrived", BigInteger, nullable=False),  # how many bytes are there
    Column("touched", Double, nullable=False),  # when somebody last worked on it, by the database's clock
)

upload_parts = Table(
    "upload_parts",
    metadata,
    Column("upload", String(16), ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True),
    Column("offset", BigInteger, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("path", String(200), nullable=False),
)

# How much may users ask of all replicas of a service together? See `shared_rates`.
rates = Table(
    "rates",
    metadata,
    Column("user", String(200), primary_key=True),
    Column("level", Double, nullable=False),  # requests; below 0, some replica has let too many through
    Column("at", Double, nullable=False),  # when it was so, by the clock of the database
)

# What a catalog knows of itself: which store it belongs to (see `store_identity`).
facts = Table(
    "facts",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

# How many models there are, how large, and how often they lent, by what `totals` says.
totals = Table(
    "totals",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("of", String(200), primary_key=True),
    Column("within", String(200), primary_key=True),
    Column("models", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("parameters", BigInteger, nullable=False),
    Column("hits", BigInteger, nullable=False),
)

# What became of starts from a model: by how much did it help?
outcomes = Table(
    "outcomes",
    metadata,
    Column("number", _KEY, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("parent", String(16), nullable=False, index=True),
    Column("child", String(16), nullable=False),  # "": it was not registered
    Column("user", String(200), nullable=False),  # who says so: an id, in a zoo without users a name
    Column("kind", String(16), nullable=False),
    Column("gain", Double, nullable=False),
)

# Public keys whose signatures count.
keys = Table(
    "keys",
    metadata,
    Column("id", String(64), primary_key=True),  # SHA-256 of the public key
    Column("public", String(64), nullable=False),  # in hexadecimal
    Column("name", String(200), nullable=False),  # whose it is, as who trusts it calls them
    Column("created", Double, nullable=False),
    Column("revoked", Double),  # None: it is valid
)

# What was registered, lent and removed, each entry bound to the one before by its digest.
ledger = Table(
    "ledger",
    metadata,
    Column("number", _KEY, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("model", String(16), nullable=False, index=True),
    Column("body", Text, nullable=False),  # JSON, as it was hashed
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
)

# Who may use a service, and what they may keep there; None: as the service is set.
users = Table(
    "users",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("created", Double, nullable=False),
    Column("bytes", BigInteger),
    Column("models", BigInteger),
    Column("rate", Double),
    Column("pins", BigInteger),
)

projects = Table(
    "projects",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("created", Double, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("project", String(16), ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("user", String(16), ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Index("members_user", "user"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("user", String(16), ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("digest", String(64), nullable=False),  # SHA-256 of the secret; the secret is nowhere
    Column("scope", String(16), nullable=False),
    Column("note", String(200), nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double),  # None: never
    # The token that a user made it with, and with which it is revoked; "": an administrator made it.
    Column("maker", String(16), nullable=False),
)

# Who is logged in to the pages of a service. A session ends with its token.
sessions = Table(
    "sessions",
    metadata,
    Column("digest", String(64), primary_key=True),  # SHA-256 of what the cookie holds, which is nowhere
    Column("token", String(16), ForeignKey("tokens.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created", Double, nullable=False),
    Column("seen", Double, nullable=False),  # the last time, to the minute
)
