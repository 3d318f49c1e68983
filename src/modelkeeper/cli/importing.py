"""The command `import`: every model in some files and folders into a zoo."""

from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.model_argument import shapes_option, trust_option
from modelkeeper.cli.options import console, echo_json, json_option, looked_into, progress, say, zoo_option
from modelkeeper.cli.sharing import are_bundles, bring, rules_options
from modelkeeper.errors import InvalidSetting

if TYPE_CHECKING:
    from modelkeeper.importing import Outcome
    from modelkeeper.importing.things import Shape


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--model",
    "architecture",
    default="",
    metavar="FACTORY",
    help="Of files of weights, what makes the model: module:factory, or a file of its graph. What a "
    "checkpoint or a JSON file beside it says of its making (hyper_parameters, config.json) is passed on.",
)
@click.option("--data", help="The data set that all of them were trained on.")
@click.option("--task", help="What all of them were trained for.")
@click.option("--tag", "tags", multiple=True, help="A tag for all of them, to be found by.")
@click.option("--project", help="The project that they belong to.")
@click.option("--visibility", help="Who may see them: public, project or private; by default their project.")
@click.option("--licence", help="What others may do with them: an SPDX expression, e.g. Apache-2.0.")
@click.option(
    "--meta",
    "meta_file",
    type=click.Path(exists=True, dir_okay=False),
    help='What is said of some of them: JSON, {"runs/*.pt": {"data": ..., "accuracy": ...}}, or CSV with the '
    "columns path, data, task, tags, accuracy ...",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that work at once."
)
@click.option("--dry-run", is_flag=True, help="Read and describe, but register nothing.")
@shapes_option("The shape of an example input; see `modelkeeper describe`.")
@trust_option
@rules_options
@zoo_option
@json_option("Print what became of each as JSON.")
def import_(
    paths: tuple[str, ...],
    architecture: str,
    meta_file: str | None,
    jobs: int,
    dry_run: bool,
    shapes: "tuple[Shape, ...]",
    trust: bool,
    zoo: str | None,
    as_json: bool,
    **meta: Any,
) -> None:
    """Take all models in files and folders into the zoo.

    PATH... are files, or folders that hold everything mixed: of PyTorch (.pt, .pth, .bin), safetensors,
    Lightning (.ckpt), Hugging Face (also its cache), MLflow, ONNX, Keras, and models of other zoos. Or they
    are bundles that `modelkeeper export` wrote; - is one on standard input.

    What was imported before is skipped, so an import that was stopped goes on where it was. Nothing is
    fetched from anywhere. If some fail, the rest is imported, and the exit code is 1.

    \b
      modelkeeper import ~/.cache/huggingface/hub --dry-run
      modelkeeper import runs/ --model my_models:make --task classification --data Flowers102
      modelkeeper import mlruns/ checkpoints/ --meta models.csv --jobs 4
      modelkeeper import bundle.mk --signed --project vision --dry-run
    """
    bundled = ("signed", "signed_by", "allow_licence", "max_size", "origin")
    rules = {name: meta.pop(name) for name in bundled}
    if are_bundles(paths):
        bring(paths, zoo, dry_run=dry_run, as_json=as_json, **rules, **_of_bundles(meta))
        return
    _import(
        paths,
        meta,
        model=architecture,
        meta_file=meta_file,
        inputs=shapes,
        jobs=jobs,
        trust=trust,
        dry_run=dry_run,
        zoo=zoo,
        as_json=as_json,
    )


def _of_bundles(meta: dict[str, Any]) -> dict[str, Any]:
    """What may be said of all models of a bundle; the rest they say themselves.

    Raises:
        InvalidSetting: More is said.
    """
    said = {key: value for key, value in meta.items() if value not in (None, ())}
    if wrong := sorted(said.keys() - {"project", "visibility"}):
        raise InvalidSetting(f"--{wrong[0].rstrip('s')}", "given", "models of a bundle say that themselves")
    return {key: meta.get(key) for key in ("project", "visibility")}


def _import(
    paths: tuple[str, ...], meta: dict[str, Any], *, zoo: str | None, as_json: bool, **how: Any
) -> None:
    """Import files and folders, and say what became of each."""
    from modelkeeper.cli import tables
    from modelkeeper.client import ModelKeeperClient
    from modelkeeper.importing import FAILED, import_models

    done: list[Outcome] = []
    where = looked_into(zoo) if how["dry_run"] else zoo
    with ModelKeeperClient(where, on_error="raise") as client, progress("importing", silent=as_json) as bar:

        def tell(outcome: "Outcome", number: int, total: int) -> None:
            done.append(outcome)
            bar(number, total)

        try:
            import_models(
                client,
                paths,
                meta={key: value for key, value in meta.items() if value not in (None, ())},
                progress=tell,
                **how,
            )
            stopped = False
        except KeyboardInterrupt:
            stopped = True
    if as_json:
        echo_json([outcome.to_dict() for outcome in done])
    else:
        console().print(tables.imported(done))
    if stopped:
        say("Stopped. Run it again: what was imported is skipped.", err=True)
    if stopped or any(outcome.status == FAILED for outcome in done):
        click.get_current_context().exit(1)


COMMANDS = (import_,)
