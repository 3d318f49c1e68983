"""Commands about what is in a zoo: list, show, remove, pin, sweep, count."""

from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.options import (
    console,
    echo_graph,
    echo_json,
    json_option,
    opened,
    progress,
    save_drawing,
    say,
    svg_option,
    waiting,
    whose_options,
    zoo_option,
)

if TYPE_CHECKING:
    from modelkeeper.policy.curves import Curve
    from modelkeeper.zoo.history.twins import Curves
    from modelkeeper.zoo.records import Record

_SORTED = ("created", "last_used", "hits", "value", "parameters", "bytes", "name")
_STATES = ("active", "not_a_parent", "evicted", "removed", "damaged")
SHOWN = 50  # lines of a table, unless more are asked for


@click.command()
@click.option("--task", help="Only models for this task.")
@click.option("--data", help="Only models trained on this data set.")
@click.option("--tag", "tags", multiple=True, help="Only models with this tag; each of them, if several.")
@whose_options("Only models")
@click.option("--name", "text", help="Only models whose names contain this.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only models in this state, or in one of these. Default: those that are stored.",
)
@click.option(
    "--sort",
    type=click.Choice([sign + name for name in _SORTED for sign in ("", "-")]),
    default="-created",
    show_default=True,
    metavar="FIELD",
    help=f"The order, by one of {', '.join(_SORTED)}; with - the largest first, of value the best.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    help=f"At most so many; 0 is all. Default: {SHOWN} in a table, all in JSON.",
)
@zoo_option
@json_option()
def models(
    task: str | None,
    data: str | None,
    tags: tuple[str, ...],
    text: str | None,
    states: tuple[str, ...],
    sort: str,
    limit: int | None,
    zoo: str | None,
    as_json: bool,
    **whose: Any,
) -> None:
    """List the models of a zoo.

    \b
      modelkeeper models
      modelkeeper models --task classification --data Flowers102 --sort -value
      modelkeeper models --state evicted --json
    """
    from modelkeeper.zoo.records import STORED, Filter
    from modelkeeper.zoo.restriction import Restriction

    said = (Restriction(**whose),)
    wanted = Filter(states=states or STORED, task=task, data=data, tags=tags, text=text, restrictions=said)
    if limit is None and not as_json:
        limit = SHOWN
    with waiting("listing", silent=as_json), opened(zoo) as coordinator:
        records = coordinator.models(wanted, order=sort, limit=limit or None)
        total = len(records) if as_json else coordinator.count(wanted)
    if as_json:
        echo_json([record.to_dict() for record in records])
    else:
        from modelkeeper.cli import tables

        console().print(tables.records(records, total))


@click.command()
@click.argument("model", metavar="ID")
@click.option("--graph", is_flag=True, help="Print the model's graph as JSON, for `query` and `diff`.")
@click.option("--curve", is_flag=True, help="Show how its training went, if that was reported.")
@svg_option("With --curve: draw it, beside a cold run of the same thing, or its parent's.")
@zoo_option
@json_option()
def show(model: str, graph: bool, curve: bool, svg: str | None, zoo: str | None, as_json: bool) -> None:
    """Show all that the zoo knows of one model.

    ID is an id, the beginning of one (four letters at least), or a name: then the newest of that name. With
    its owner or project it is theirs (ada/resnet20); without, it is yours, else one of your projects', else
    another's, and it is said which.

    \b
      modelkeeper show resnet20
      modelkeeper show ada/resnet20
      modelkeeper show 3fa9 --graph > resnet20.json
      modelkeeper show 3fa9 --curve
      modelkeeper show 3fa9 --curve --svg curve.svg
    """
    import msgspec

    with waiting("looking", silent=as_json or graph or curve), opened(zoo) as coordinator:
        record = coordinator.show(model)
        if graph:
            echo_graph(coordinator.graph(record))
            return
        if svg is not None:
            _draw_curve(coordinator.curves(record), record, svg)
            return
        if curve:
            _show_curve(coordinator.curve(record), as_json)
            return
        files, credit = coordinator.location(record), coordinator.credit(record)
    if as_json:
        echo_json(record.to_dict() | {"credit": msgspec.to_builtins(credit)})
    else:
        from modelkeeper.cli import tables

        console().print(tables.record(record, files, credit))


def _show_curve(curve: "Curve | None", as_json: bool) -> None:
    """Print how a training went; of one that nobody reported, null."""
    import msgspec

    if as_json:
        echo_json(msgspec.to_builtins(curve))
    else:
        from modelkeeper.cli import tables

        console().print(tables.curve(curve))


def _draw_curve(curves: "Curves", record: "Record", svg: str) -> None:
    """Save how a training went as a picture, beside what it is compared with."""
    if curves.curve is None:
        raise click.ClickException(
            f"{record.full_name} left no curve: nobody reported how its training went."
        )
    beside = {f"{curves.kind} {curves.name}".strip(): curves.beside} if curves.beside is not None else {}
    save_drawing(curves.curve.plot(beside, name=record.name), svg)


@click.command()
@click.argument("model", metavar="ID")
@zoo_option
@svg_option("Draw it.")
@json_option()
def tree(model: str, zoo: str | None, svg: str | None, as_json: bool) -> None:
    """Show what a model descends from, and what descends from it.

    ID is as for `modelkeeper show`. A model that started from several stands below each of them; [again]
    marks all places but the one where its own descendants stand.

    \b
      modelkeeper tree resnet20
      modelkeeper tree resnet20 --svg family.svg
    """
    with waiting("following parents", silent=as_json), opened(zoo) as coordinator:
        lineage = coordinator.tree(model)
    if svg is not None:
        save_drawing(lineage.plot(), svg)
    elif as_json:
        echo_json(lineage.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.lineage(lineage))


@click.command()
@click.argument("model", metavar="ID")
@click.option(
    "--examples",
    type=click.Path(exists=True, dir_okay=False),
    help="A safetensors file with tensors `inputs` and `labels`. Default: the model's own evidence.",
)
@zoo_option
@json_option()
def check(model: str, examples: str | None, zoo: str | None, as_json: bool) -> None:
    """Compare the accuracy that is claimed of a model with what it does on examples that you trust.

    ID is as for `modelkeeper show`. Without examples of yours, those are taken that its owner attached as
    evidence. The model's program runs in a process of its own; what comes out is told to the zoo, and counts
    for whoever else is offered the model. The exit code is 1 if the claim does not hold.

    \b
      modelkeeper check resnet20 --examples held_out.safetensors
    """
    import msgspec

    from modelkeeper.checking import check as compare
    from modelkeeper.connection import login
    from modelkeeper.errors import InvalidMeta
    from modelkeeper.settings import Settings
    from modelkeeper.weights import open_file

    held_out = open_file(examples) if examples is not None else {}
    if held_out and (missing := {"inputs", "labels"} - set(held_out)):
        raise InvalidMeta("examples", f"no tensor {min(missing)!r}", "give `inputs` and `labels`")
    with waiting("running the model", silent=as_json), opened(zoo) as coordinator:
        sandbox = Settings.read().sandbox
        given = held_out.get("inputs"), held_out.get("labels")
        found = compare(coordinator, model, *given, sandbox=sandbox, user=login())
    if as_json:
        echo_json(msgspec.to_builtins(found) | {"accuracy": found.accuracy})
    else:
        say(f"{found}.")
    if not found.holds:
        click.get_current_context().exit(1)


@click.command()
@click.argument("models", metavar="ID...", nargs=-1, required=True)
@zoo_option
@json_option()
def remove(models: tuple[str, ...], zoo: str | None, as_json: bool) -> None:
    """Take models out of the zoo.

    Their weights are deleted; their records stay, for those who descend from them. ID... are as for
    `modelkeeper show`.

    \b
      modelkeeper remove 3fa9c2d1e0b4a567
    """
    from modelkeeper.connection import login

    with waiting("removing", silent=as_json), opened(zoo) as coordinator:
        removed = [coordinator.remove(name, user=login()) for name in models]
    _say("removed", removed, as_json)


@click.command()
@click.argument("models", metavar="ID...", nargs=-1, required=True)
@zoo_option
@json_option()
def pin(models: tuple[str, ...], zoo: str | None, as_json: bool) -> None:
    """Keep models, however little they are worth when the zoo is over its capacity.

    ID... are as for `modelkeeper show`.

    \b
      modelkeeper pin resnet20
    """
    _pin(models, True, zoo, as_json)


@click.command()
@click.argument("models", metavar="ID...", nargs=-1, required=True)
@zoo_option
@json_option()
def unpin(models: tuple[str, ...], zoo: str | None, as_json: bool) -> None:
    """Let models go again when the zoo is over its capacity.

    ID... are as for `modelkeeper show`.

    \b
      modelkeeper unpin resnet20
    """
    _pin(models, False, zoo, as_json)


def _pin(models: tuple[str, ...], pinned: bool, zoo: str | None, as_json: bool) -> None:
    """Pin models or let them go, and say of which that was so before."""
    from modelkeeper.connection import login

    done: list[tuple[bool, Record]] = []  # and did that change anything?
    with waiting("pinning", silent=as_json), opened(zoo) as coordinator:
        for name in models:
            before = coordinator.show(name)
            done.append((before.pinned != pinned, coordinator.pin(before.id, pinned, user=login())))
    if as_json:
        echo_json([record.to_dict() for _, record in done])
        return
    words = {True: "pinned", False: "already pinned:"} if pinned else {True: "unpinned", False: "not pinned:"}
    for changed, record in done:
        _say(words[changed], [record], as_json)


@click.command()
@click.option("--verify", is_flag=True, help="Read all weights and compare their checksums.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Leave alone what is younger: it may be a registration under way. Default: as the zoo is set.",
)
@zoo_option
@json_option()
def gc(verify: bool, grace: float | None, zoo: str | None, as_json: bool) -> None:
    """Sweep what killed processes left behind, take out damaged models, and make room.

    \b
      modelkeeper gc
      modelkeeper gc --verify --grace 0
    """
    from modelkeeper.connection import login

    with opened(zoo) as coordinator, progress("looking at weights", in_bytes=True, silent=as_json) as bar:
        swept = coordinator.gc(grace=grace, verify=verify, progress=bar, user=login())
    if as_json:
        echo_json(swept.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.swept(swept))


@click.command()
@zoo_option
@json_option()
def stats(zoo: str | None, as_json: bool) -> None:
    """Count what is in the zoo.

    \b
      modelkeeper stats
      modelkeeper stats --zoo /shared/zoo --json
    """
    with waiting("counting", silent=as_json), opened(zoo) as coordinator:
        counts = coordinator.stats()
    if as_json:
        echo_json(counts)
    else:
        from modelkeeper.cli import tables

        console().print(tables.stats(counts))


def _say(what: str, records: "list[Record]", as_json: bool) -> None:
    """Print what was done to models."""
    if as_json:
        echo_json([record.to_dict() for record in records])
    else:
        for record in records:
            say(f"{what} {record.full_name} ({record.id})")
            for note in record.notes:
                say(f"Note: {note}.", err=True)


COMMANDS = (models, show, check, tree, remove, pin, unpin, gc, stats)
