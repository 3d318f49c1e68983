"""What does a query answer, in words and in numbers? From what was found, chosen and planned."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from modelkeeper.coordinator.candidates import Pool, Request, same_task
from modelkeeper.coordinator.company import Lenders
from modelkeeper.policy.credit import Credit
from modelkeeper.policy.selection import Candidate, Choice, RunnerUp
from modelkeeper.text import enumeration
from modelkeeper.warmstart.advice import Advice, advise, lent_share
from modelkeeper.warmstart.answer import Answer, Parent, Rival

MOST_RIVALS = 20  # runners-up in an answer
PARTS_MISSING = "parts of the search index ({}) did not answer: there may be a better parent"
SPENT = "the search ended at its budget of {:,} alignments, and proves nothing: there may be a better parent"
CUT_SHORT = "the query took too long and was cut short: there may be a better parent"


class Said(Struct, frozen=True, kw_only=True):
    """What else there is to say of a query."""

    seconds: dict[str, float]  # by stage
    believed: dict[str, Credit] = {}  # by id, how far the claims of the parents are believed
    warnings: tuple[str, ...] = ()
    signers: dict[str, str] = {}  # whose the keys are that signed the parents, of those that are trusted
    restricted: str = ""  # which models could lend at all


def answer(
    request: Request,
    pool: Pool,
    choice: Choice,
    lenders: Lenders | None,
    said: Said,
) -> Answer:
    """Say what was chosen and why; without lenders it is a cold start."""
    taken = () if lenders is None else lenders.candidates
    ids = {candidate.id for candidate in taken}
    lost = [runner_up for runner_up in choice.runners_up if runner_up.candidate.id not in ids]
    if taken and choice.parent is not None and choice.parent.id not in ids:
        lost.insert(0, RunnerUp(choice.parent, "two that fit side by side are taken"))
    cold = Answer(
        reason=choice.reason,
        runners_up=tuple(_rival(runner_up, pool) for runner_up in lost[:MOST_RIVALS]),
        considered=pool.considered,
        aligned=pool.aligned,
        warnings=(*said.warnings, *_unproven(pool)),
        seconds=said.seconds,
        restricted=said.restricted,
        dry_run=request.dry_run,
    )
    if lenders is None:
        return cold
    plan, parents = lenders.plan, tuple(_parent(candidate, pool, said) for candidate in taken)
    first = parents[0]
    return msgspec.structs.replace(
        cold,
        parent=first.id,
        parent_name=first.name,
        parents=parents,
        reason=_why(taken, choice),
        similarity=first.similarity,
        metric=first.metric,
        value=first.value,
        data=first.data,
        framework=first.framework,
        exact=plan.exact,
        doubts=plan.doubts,
        advice=_advice(request, pool, lenders),
        actions=plan.summary(),
        transferred=round(100 * plan.coverage, 2),
    )


def _unproven(pool: Pool) -> tuple[str, ...]:
    """Why there may be a better parent than those that were found."""
    if pool.missing:
        return (PARTS_MISSING.format(", ".join(f"shard {number}" for number in sorted(pool.missing))),)
    if pool.proven:
        return ()
    spent = pool.budget is not None and pool.aligned >= pool.budget
    return (SPENT.format(pool.budget) if spent else CUT_SHORT,)


def _advice(request: Request, pool: Pool, lenders: Lenders) -> Advice:
    """How to train from here: of several parents the best counts."""
    first, plan = lenders.candidates[0], lenders.plan
    record = pool.records[first.id]
    return advise(
        exact=plan.exact,
        similarity=first.similarity,
        same_data=same_task(record, request.query),
        standing=first.standing,
        finished=record.finished,
        lent=lent_share(plan.entries, request.query.frozen),
    )


def _rival(lost: RunnerUp, pool: Pool) -> Rival:
    candidate, metric = lost.candidate, lost.candidate.metric
    return Rival(
        id=candidate.id,
        name=candidate.name,
        similarity=candidate.similarity,
        metric=metric.name if metric else "",
        value=metric.value if metric else None,
        framework=pool.records[candidate.id].framework,
        owner=pool.records[candidate.id].owner,
        why=lost.why_lost,
    )


def _parent(candidate: Candidate, pool: Pool, said: Said) -> Parent:
    record = pool.records[candidate.id]
    return Parent(
        id=record.id,
        name=record.name,
        similarity=candidate.similarity,
        metric=record.metric,
        value=record.value,
        data=record.data,
        framework=record.framework,
        owner=record.owner,
        project=record.project,
        licence=record.licence,
        signer=record.signer,
        signed_by=said.signers.get(record.signer, ""),
        claim=str(said.believed[record.id]) if record.value is not None else "",
    )


def _why(lenders: Sequence[Candidate], choice: Choice) -> str:
    """Why just these lend."""
    if len(lenders) == 1:
        return choice.reason
    names = enumeration([candidate.name for candidate in lenders])
    fit = f"{names} fit side by side into the model, which starts as their mean"
    return f"{choice.reason}; {fit}" if choice.parent in lenders else fit
