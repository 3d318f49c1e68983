"""Which processes train this model together, and how does one of them act for all?

Under torch.distributed every process has a copy of the model, or a part of it (`shards`). The one with rank 0
leads: it acts, and the others follow. What it loads comes to all of them, and so does what the act returned
or raised.

    who     the group that DistributedDataParallel was given, the device mesh of sharded parameters, or else
            all processes. Their models must be alike; processes with models of their own act alone
    meet    by keys in the store of the process group, with a deadline. A collective would hang if only some
            processes call; here they learn of it, nobody acts, and the models stay as they are
    follow  messages of the leader, by keys too, so that it may take its time. Collectives come only after
            messages that announce them, when everyone listens
"""

import hashlib
import pickle
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch.distributed as dist
from torch import nn

from modelkeeper.errors import CannotShare, InvalidWeights, ModelKeeperError, RanksApart
from modelkeeper.frontends.torch.collectives import Collectives
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.read_load import targets
from modelkeeper.frontends.torch.shards import is_part

if TYPE_CHECKING:
    from modelkeeper.frontends.protocol import Frontend, Trials
    from modelkeeper.weights import Array

T = TypeVar("T")
LONGEST = 1800.0  # seconds that followers wait for a leader that has begun: what torch waits by default
# What messages of the leader say.
LOAD, READ, EVEN, RETURNED, RAISED = "load", "read", "even", "returned", "raised"
TOGETHER, ALONE, APART = b"together", b"alone", b"apart"  # what became of a meeting


def team(frontend: "Frontend", model: nn.Module) -> "TorchTeam | None":
    """The processes that train a model together; None: this one alone.

    Raises:
        CannotShare: The model is divided among processes in a way that is not understood.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    named = named_tensors(model)
    meshes = {entry.tensor.device_mesh for entry in named if is_part(entry.tensor)}
    group = _wrapped_group(model)
    if not meshes:
        groups = [dist.distributed_c10d._get_default_group() if group is None else group]
        ranks = dist.get_process_group_ranks(groups[0])
    else:
        mesh = max(meshes, key=lambda mesh: int(mesh.size()))
        groups = [mesh.get_group(axis) for axis in range(mesh.ndim)]
        ranks = [int(rank) for rank in mesh.mesh.flatten().tolist()]
        if group is not None or any(not {*other.mesh.flatten().tolist()} <= {*ranks} for other in meshes):
            advice = "Query for it before it is divided, on every rank"
            raise CannotShare(type(model).__name__, "its parameters do not lie on one device mesh", advice)
    if len(ranks) == 1:
        return None
    return TorchTeam(frontend, model, groups, ranks, divided=bool(meshes))


def _wrapped_group(model: nn.Module) -> Any:
    """The group that a wrapper of the model, or of a part of it, was given; None: there is no wrapper."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # who has wrapped a model has imported it
    for module in model.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            return module.process_group
        if fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
            advice = "Use fully_shard; or query before you wrap it, on every rank, and register a plain copy"
            raise CannotShare(type(model).__name__, "FullyShardedDataParallel has flattened it", advice)
    return None


class TorchTeam:
    """The processes that train one model: see `protocol.Team`."""

    def __init__(
        self,
        frontend: "Frontend",
        model: nn.Module,
        groups: Sequence[dist.ProcessGroup],
        ranks: Sequence[int],
        *,
        divided: bool,
    ) -> None:
        """Find the store and the place of this process.

        Args:
            frontend: That takes the model.
            model: This process's own.
            groups: Along each axis of the mesh; the leader is the first in each.
            ranks: Of all processes, as all of them name each other.
            divided: Does each process have a part of the model only?
        """
        self.frontend, self.model, self.divided = frontend, model, divided
        self.collectives = Collectives(groups)
        self._rank, self._ranks = dist.get_rank(), ranks
        self.leads = all(dist.get_rank(group) == 0 for group in groups)
        name = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
        store = dist.distributed_c10d._get_default_store()
        self.store = dist.distributed_c10d.PrefixStore(f"modelkeeper/{name}", store)

    def write(self, act: "Callable[[Frontend], T]", patience: float) -> T:
        """Act once on the models of all processes, which are equal afterwards."""
        deferred = [named.names[0] for named in named_tensors(self.model) if named.tensor.is_meta]
        if deferred:  # what one process makes of them, the others do not have
            advice = "give it memory and values first (model.to_empty), or query in one process"
            raise InvalidWeights(
                deferred[0], f"it is on the meta device, and several processes train it; {advice}"
            )
        return self._act(*self._meet("write", patience), act)

    def read(self, act: "Callable[[Frontend], T]", patience: float) -> T:
        """Act once, on what the leader has, or on what all have parts of."""
        if self.divided:
            return self._act(*self._meet("read", patience), act)
        place = (
            f"copy/{self.store.add(f'copy/calls/{self._rank}', 1)}"  # the leader has all, and need not wait
        )
        if self.leads:
            self.store.set(f"{place}/begun", self._signature())
        elif not self._wait([f"{place}/begun"], patience):
            raise RanksApart(f"rank {self._ranks[0]} did not call within {patience:g} s")
        alike = self.leads or self.store.get(f"{place}/begun").decode() == self._signature()
        return self._act(TOGETHER if alike else ALONE, place, act)

    def _act(self, met: bytes, place: str, act: "Callable[[Frontend], T]") -> T:
        if met == ALONE:
            return act(self.frontend)
        return self._lead(place, act) if self.leads else cast(T, self._follow(place))

    # -- meeting ------------------------------------------------------------------------------------------

    def _meet(self, call: str, patience: float) -> tuple[bytes, str]:
        """Wait until all processes call; how that ended, and a name for what follows.

        The first to decide decides for all: the leader when all have come, whoever loses patience otherwise.
        Meetings that were decided before this process came are over, so it waits at the next.

        Raises:
            RanksApart: Not all came in time.
        """
        while True:
            place = f"{call}/{self.store.add(f'{call}/calls/{self._rank}', 1)}"
            decision = f"{place}/decision"
            if not self.store.check([decision]):
                break
        self.store.set(f"{place}/{self._rank}", self._signature())
        everyone = [f"{place}/{rank}" for rank in self._ranks]
        decided = APART
        if not self.leads:
            self._wait([decision], patience)
        elif self._wait(everyone, patience):
            alike = len({self.store.get(key) for key in everyone}) == 1
            decided = TOGETHER if alike else ALONE
        decided = self.store.compare_set(decision, "", decided.decode())
        if decided == APART:
            came = [rank for rank, key in zip(self._ranks, everyone, strict=True) if self.store.check([key])]
            ranks = ", ".join(map(str, came[:8])) + (" ..." if len(came) > 8 else "")
            raise RanksApart(f"of {len(self._ranks)} only rank {ranks} called within {patience:g} s")
        return decided, place

    def _signature(self) -> str:
        """What models of processes that train one together have in common."""
        tensors = [(n.names, tuple(n.tensor.shape), str(n.tensor.dtype)) for n in named_tensors(self.model)]
        return hashlib.sha256(repr(tensors).encode()).hexdigest()

    def _wait(self, keys: list[str], seconds: float) -> bool:
        """Wait for keys in the store. Asked again and again: a wait of its own would block other threads."""
        end, pause = time.monotonic() + seconds, 0.001
        while not self.store.check(keys):
            if time.monotonic() > end:
                return False
            time.sleep(pause)
            pause = min(1.5 * pause, 0.1)
        return True

    # -- acting -------------------------------------------------------------------------------------------

    def _lead(self, place: str, act: "Callable[[Frontend], T]") -> T:
        """Act, and tell the others what came of it."""
        leading = _Leading(self, place)
        try:
            returned = act(cast("Frontend", leading))
        except BaseException as error:
            leading.end(RAISED, _portable(error))
            raise
        leading.end(RETURNED, returned)
        return returned

    def _follow(self, place: str) -> Any:
        """Do as the leader says, until it has acted."""
        count = 0
        while True:
            key = f"{place}/message/{count}"
            if not self._wait([key], LONGEST):
                raise RanksApart(f"rank {self._ranks[0]} did not finish within {LONGEST:g} s")
            count += 1
            said, about = pickle.loads(self.store.get(key))
            if said == LOAD:
                homes = {named.names[0]: named.tensor for named in named_tensors(self.model)}
                self.collectives.deal([homes[name] for name in about], {})
            elif said == READ:
                list(self.collectives.gather(self.model, source=False))
            elif said == EVEN:
                self.collectives.even_out(self.model)
            elif said == RAISED:
                raise about
            else:
                return about


class _Leading:
    """The front end of the one who acts: what it loads and reads concerns the models of all."""

    def __init__(self, team: TorchTeam, place: str) -> None:
        self._team, self._place = team, place
        self._told = 0
        self._changed = False
        self._readers: list[Generator[tuple[str, Array]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._team.frontend, name)

    @property
    def trials(self) -> "Trials | None":
        """None for a divided model: a copy that is trained by one process alone would wait for the others."""
        return None if self._team.divided else self._team.frontend.trials

    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        """Write weights into the model: of a divided one into all parts at once, otherwise here at first."""
        if model is not self._team.model:
            return self._team.frontend.load(model, weights)
        if not self._team.divided:
            self._changed = True
            return self._team.frontend.load(model, weights)
        planned = targets(model, weights)
        self._tell(LOAD, list(planned))
        values = dict(enumerate(value for _, value in planned.values()))
        self._team.collectives.deal([target for target, _ in planned.values()], values)
        return model

    def read(self, model: Any) -> "Iterator[tuple[str, Array]]":
        """Every stored tensor by name, put together from the parts that all have."""
        if model is not self._team.model or not self._team.divided:
            return self._team.frontend.read(model)
        reader = self._gather()
        self._readers.append(reader)
        return reader

    def _gather(self) -> "Generator[tuple[str, Array]]":
        self._tell(READ)
        yield from self._team.collectives.gather(self._team.model, source=True)

    def end(self, said: str, about: Any) -> None:
        """Finish what is under way, and tell the others what came of the act."""
        for reader in self._readers:
            reader.close()
        if self._changed:
            self._tell(EVEN)
            self._team.collectives.even_out(self._team.model)
        self._tell(said, about)

    def _tell(self, said: str, about: Any = None) -> None:
        message = cast(str, pickle.dumps((said, about)))  # a store takes bytes as well
        self._team.store.set(f"{self._place}/message/{self._told}", message)
        self._told += 1


def _portable(error: BaseException) -> BaseException:
    """The error, or one like it that can go to another process."""
    try:
        same = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (whatever an error may hold)
        same = None
    return same if isinstance(same, Exception) else ModelKeeperError(f"{type(error).__name__}: {error}")
