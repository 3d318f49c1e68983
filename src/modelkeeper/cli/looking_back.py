"""Commands about what happened in a zoo: the log, how trainings started, what that saved."""

from typing import Any

import click

from modelkeeper.cli.options import console, echo_json, json_option, opened, waiting, zoo_option

SHOWN = 50  # lines of a table, unless more are asked for


@click.command()
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="At most so many.")
@click.option("--model", metavar="ID", help="Only what happened to this model.")
@click.option("--action", help="Only events of this kind: registered, refused, lent, evicted, swept ...")
@zoo_option
@json_option()
def log(limit: int, model: str | None, action: str | None, zoo: str | None, as_json: bool) -> None:
    """Show what happened in the zoo, the newest first: who registered what, what was evicted, and why.

    \b
      modelkeeper log
      modelkeeper log --action evicted --limit 10
    """
    with waiting("reading what happened", silent=as_json), opened(zoo) as coordinator:
        identity = coordinator.show(model).id if model else None
        events = coordinator.log(limit=limit, model=identity, action=action)
    if as_json:
        echo_json([event.to_dict() for event in events])
    else:
        from modelkeeper.cli import tables

        console().print(tables.events(events))


@click.command()
@click.option("--model", metavar="ID", help="Only the start of this model, once it was registered.")
@click.option("--parent", metavar="ID", help="Only starts from this model.")
@click.option("--user", help="Only starts of this user.")
@click.option("--project", help="Only starts of what was registered for this project.")
@click.option("--task", help="Only starts for this task.")
@click.option("--data", help="Only starts for this data set.")
@click.option("--cold/--warm", default=None, help="Only starts from nothing, or only from other models.")
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="At most so many.")
@zoo_option
@json_option()
def starts(
    model: str | None, parent: str | None, limit: int, zoo: str | None, as_json: bool, **chosen: Any
) -> None:
    """Show how trainings started, the newest first: from which models, how similar, and what came of it.

    One line for each query that was no dry run, cold ones too. ID is as for `modelkeeper show`.

    \b
      modelkeeper starts
      modelkeeper starts --parent resnet20
      modelkeeper starts --model resnet56 --json
    """
    from modelkeeper.zoo.catalog.starts import StartFilter

    with waiting("reading what happened", silent=as_json), opened(zoo) as coordinator:
        for of, name in (("model", model), ("parent", parent)):
            chosen[of] = coordinator.show(name).id if name else None
        found = coordinator.starts(StartFilter(**chosen), limit=limit)
    if as_json:
        echo_json([start.to_dict() for start in found])
    else:
        from modelkeeper.cli import tables

        console().print(tables.starts(found))


@click.command()
@click.option(
    "--by",
    type=click.Choice(["week", "user", "project"]),
    default="week",
    show_default=True,
    help="What is summed up together.",
)
@click.option(
    "--days", type=click.FloatRange(0, min_open=True), default=90.0, show_default=True, help="Of so long."
)
@zoo_option
@json_option()
def savings(by: str, days: float, zoo: str | None, as_json: bool) -> None:
    """Show what warm starts saved: as races measured it, as cold runs of the same model show it, as advised.

    These are three kinds of evidence, of different weight, and are never added up. What nobody knows is not
    guessed. Steps are as each training counts them.

    \b
      modelkeeper savings
      modelkeeper savings --by user --days 30 --json
    """
    import time

    from modelkeeper.zoo.catalog.starts import StartFilter

    with waiting("reading what happened", silent=as_json), opened(zoo) as coordinator:
        saved = coordinator.savings(by, StartFilter(since=time.time() - days * 86400))
    if as_json:
        echo_json(saved.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.savings(saved))


COMMANDS = (log, starts, savings)
