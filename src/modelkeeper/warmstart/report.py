"""What was done for a model, for people: answers, calibrations and races as tables.

    report(answer)                  all that an answer says, with some runners-up
    calibration_table(calibration)  what was fitted on examples
    race_table(race)                how the starts of a probe ran

They return something that rich can print; nothing here prints anything.
"""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelkeeper.display.consoles import plain
from modelkeeper.frontends.fit_tasks import Calibration
from modelkeeper.text import counted, enumeration, with_article
from modelkeeper.warmstart.answer import Answer, Parent, Rival
from modelkeeper.warmstart.race.rules import Race

MOST_SHOWN = 5  # runners-up in a printed report
ID = 18  # letters of an id in brackets


def report(answer: Answer, most: int = MOST_SHOWN) -> RenderableType:
    """An answer as people read it, with so many runners-up."""
    lines: list[RenderableType] = []
    if answer.cold:
        lines.append(plain(f"Cold start: {answer.reason}."))
    else:
        lines += _warm(answer)
    if answer.calibration is not None:
        lines += _calibration(answer.calibration)
    if answer.probe is not None:
        lines.append(race_table(answer.probe))
    if answer.runners_up:
        lines.append(_rivals(answer.runners_up[:most]))
        if len(answer.runners_up) > most:
            lines.append(Text(f"and {len(answer.runners_up) - most} more"))
    said = answer.reason if answer.cold else ""
    notes = [warning for warning in answer.warnings if warning.removesuffix(".") not in said]
    lines += [plain(f"Note: {warning}") for warning in notes]
    if answer.seconds:
        spent = ", ".join(f"{stage} {1000 * seconds:.0f} ms" for stage, seconds in answer.seconds.items())
        lines.append(
            plain(f"Considered {counted(answer.considered, 'model')}, aligned {answer.aligned:,}; {spent}.")
        )
    return Group(*lines)


def _warm(answer: Answer) -> Iterator[RenderableType]:
    """From whom the weights are, why, what became of them, and how to go on."""
    would = "would start" if answer.dry_run else "starts"
    known = [f"similarity {parent.similarity or 0:.3f}{_worth(parent)}" for parent in answer.parents]
    if len(known) == 1:
        kind = f", {with_article(answer.framework)} model" if answer.framework else ""
        named = answer.parents[0].full_name
        yield plain(f"The model {would} warm from {named} ({answer.parent}){kind}: {known[0]}.")
    else:
        named = enumeration([f"{parent.full_name} ({parent.id})" for parent in answer.parents])
        yield plain(f"The model {would} warm from {named}, side by side:")
        for parent, said in zip(answer.parents, known, strict=True):
            kind = f"{with_article(parent.framework)} model, " if parent.framework else ""
            yield plain(f"  {parent.name}: {kind}{said}")
    yield plain(f"Why: {answer.reason}.")
    yield from (plain(_claim(parent)) for parent in answer.parents if parent.owner)
    if answer.restricted:
        yield plain(f"Only models {answer.restricted} could lend.")
    columns = ("layers", "tensors", "parameters", "percent")
    table = Table(header_style="bold")
    table.add_column("action")
    for heading in columns:
        table.add_column(heading, justify="right")
    for action, row in answer.actions.items():  # over JSON every number comes back as a float
        table.add_row(plain(action), *(f"{row[key]:,.0f}" for key in columns[:-1]), f"{row['percent']:,}")
    yield table
    if answer.exact:
        one = len(answer.parents) == 1
        what = "what the parent computes" if one else f"the mean of what {answer.parents_named} compute"
        yield plain(f"Exact: before any training it computes {what}.")
    else:
        yield Text("Approximate, since:")
    for doubt in answer.doubts:
        yield plain(f"  {doubt}")
    if answer.frozen:
        are = "tensor is frozen and was" if answer.frozen == 1 else "tensors are frozen and were"
        yield plain(f'{answer.frozen:,} {are} kept; frozen="replace" would replace what is frozen, too.')
    yield plain(f"Advice: {answer.advice}.")


def _claim(parent: Parent) -> str:
    """Who says what of a parent, and what is known of that."""
    said = f"claims {parent.quality}" if parent.quality else "says nothing of how good it is"
    of = f" for project {parent.project}" if parent.project else ""
    signed = "not signed"
    if parent.signer:
        signed = f"signed by {parent.signed_by}" if parent.signed_by else "signed by a key that nobody trusts"
    licence = f"licence {parent.licence}" if parent.licence else "no licence is given"
    known = parent.claim or "claim not checked"
    return f"{parent.owner}{of} {said}; {signed}, {licence}; {known}."


def _worth(parent: Parent) -> str:
    """How good a parent is, and at what."""
    measured = f", {parent.metric} {parent.value:.4g}" if parent.value is not None else ""
    return measured + (f" on {parent.data}" if parent.data else "")


def _calibration(calibration: Calibration) -> Iterator[RenderableType]:
    """A calibration in two lines."""
    kept = "kept" if calibration.kept else "not kept: the model has the weights of the plain transfer"
    cost = f"on {calibration.examples:,} examples in {calibration.seconds:.1f} s"
    yield plain(f"Calibrated {cost}: {counted(calibration.fitted, 'layer')} fitted.")
    change = f"{calibration.plain:.4g} before, {calibration.calibrated:.4g} after"
    yield plain(f"{calibration.measure.capitalize()}: {change}; {kept}.")


def _rivals(rivals: tuple[Rival, ...]) -> Table:
    table = Table(header_style="bold", title="not taken", title_justify="left")
    for heading in ("model", "framework", "similarity", "quality", "why"):
        # An id that is to be copied stays in one line, with what is around it.
        table.add_column(heading, overflow="fold", min_width=ID if heading == "model" else None)
    for rival in rivals:
        quality = f"{rival.metric} {rival.value:.4g}" if rival.value is not None else ""
        model, similarity = f"{rival.full_name} ({rival.id})", f"{rival.similarity:.3f}"
        table.add_row(*map(plain, (model, rival.framework, similarity, quality, rival.why)))
    return table


def calibration_table(calibration: Calibration) -> RenderableType:
    """What was fitted, how near it came on held-out examples, what it cost."""
    table = Table(header_style="bold")
    for heading in ("layer", "follows", "how"):
        table.add_column(heading, overflow="fold")
    for heading in ("error before", "after"):
        table.add_column(heading, justify="right")
    for layer in calibration.layers:
        table.add_row(
            plain(layer.layer),
            plain(layer.target),
            plain(layer.how),
            _number(layer.before),
            _number(layer.after),
        )
    verdict = "kept"
    if not calibration.kept:
        verdict = f"not kept, {calibration.why}: the target has the weights of the plain transfer"
    lines = [
        plain(f"{calibration.measure}:"),
        plain(f"{calibration.plain:.4g} before, {calibration.calibrated:.4g} after; {verdict}"),
        Text(
            f"{calibration.fitted} of {len(calibration.layers)} layers fitted "
            f"on {calibration.examples:,} examples "
            f"in {calibration.seconds:.1f} s, about {calibration.memory / 2**20:,.0f} MiB of activations"
        ),
    ]
    return Group(table, *lines)


def race_table(race: Race) -> RenderableType:
    """How the starts ran, and which was taken."""
    table = Table(header_style="bold")
    for heading in ("start", "from"):
        table.add_column(heading, overflow="fold")
    for heading in ("steps", "first loss", "loss"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", overflow="fold")
    for run in race.runners:
        losses = _number(run.first), _number(run.loss)
        table.add_row(plain(run.start), plain(run.parent), str(run.steps), *losses, plain(run.verdict))
    text = f"{race.steps} training steps in {race.seconds:.1f} s; a loss is that of a start's last batches"
    return Group(table, Text(text))


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.4f}"
