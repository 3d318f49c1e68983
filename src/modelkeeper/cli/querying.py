"""Commands about one model and the zoo: `query` for a parent, `explain` the choice, `register` a model."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modelkeeper.cli.model_argument import (
    ONNX,
    OTHERS,
    Given,
    is_graph,
    open_model,
    read_graph,
    save_model_file,
    shapes_option,
    trust_option,
)
from modelkeeper.cli.options import (
    console,
    echo_json,
    json_option,
    progress,
    waiting,
    whose_options,
    zoo_option,
)
from modelkeeper.cli.options import opened as opened_zoo
from modelkeeper.errors import InvalidMeta
from modelkeeper.plugins import POLICIES
from modelkeeper.zoo.records import MAX_PARENTS

if TYPE_CHECKING:
    from modelkeeper.graph import Graph
    from modelkeeper.importing.things import Shape
    from modelkeeper.warmstart.loan import Loan
    from modelkeeper.weights import Array

COLD_START = 3  # exit code of a query that found no parent
REFUSED = 4  # ... of a registration that the zoo refused, or had no room for

_INPUT = "The shape of an example input; see `modelkeeper describe`."
_QUERY = (
    click.option("--data", help="The data set that the model will be trained on."),
    click.option("--task", help="Take only parents for this task."),
    click.option("--tag", "tags", multiple=True, help="Take only parents with this tag."),
    click.option(
        "--parent",
        "parents",
        multiple=True,
        metavar="ID",
        help="Prefer this model, by id or name (ada/resnet20; a bare name is yours first).",
    ),
    click.option("--exclude", multiple=True, metavar="ID", help="Do not take this model, by id or name."),
    whose_options("Take only parents"),
    click.option(
        "--most-parents",
        type=click.IntRange(1, MAX_PARENTS),
        help="So many models may lend, side by side: the model then starts as their mean.",
    ),
    click.option(
        "--min-similarity",
        "minimum_similarity",
        type=click.FloatRange(0, 1),
        help="Below this, start cold. Default: as the zoo is set (0.3).",
    ),
    click.option(
        "--budget",
        type=click.IntRange(1),
        help="Compare with so many architectures at most; the answer says if that proves nothing.",
    ),
    click.option(
        "--policy",
        help=f"How a parent is chosen: {' or '.join(POLICIES.built_in)}. Default: as the zoo is set.",
    ),
    click.option("--model", "architecture", metavar="FACTORY", help="Of a file of weights, its factory."),
    shapes_option(_INPUT),
    trust_option,
    zoo_option,
    json_option("Print the answer as JSON."),
)


def _query_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_QUERY):
        command = option(command)
    return command


@click.command()
@click.argument("model", metavar="QUERY")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the warm weights to this safetensors file, or the warm model to this .onnx file. "
    "Without it, nothing is lent: a dry run.",
)
@click.option("--dry-run", is_flag=True, help="Find and plan, but write nothing and count nothing.")
@_query_options
def query(
    model: str,
    output: str | None,
    dry_run: bool,
    shapes: "tuple[Shape, ...]",
    architecture: str | None,
    trust: bool,
    zoo: str | None,
    as_json: bool,
    **meta: Any,
) -> None:
    """Find a parent for a model, and say what it would lend.

    QUERY is a factory or a path, as for `modelkeeper describe`, or a file that it wrote with --json.
    With --output, the weights to start from are written. From a model the file is whole: what the parent does
    not lend has the model's own initial values. From a file of a graph, what is not lent is left out.

    If no model is near enough, the answer is a cold start: exit code 3, and no file is written.

    \b
      modelkeeper query my_models:resnet20 --task classification --data Flowers102
      modelkeeper query "my_models:make(width=64)" --output warm.safetensors
      modelkeeper query model.onnx -o warmed.onnx
      modelkeeper query resnet20.json --dry-run --json
    """
    given = Given(shapes, trust, architecture)
    with waiting("asking the zoo", silent=as_json):
        loan = _ask(model, given, zoo, meta, output=None if dry_run else output)
    _report(loan, as_json)


@click.command()
@click.argument("model", metavar="QUERY")
@_query_options
def explain(
    model: str,
    shapes: "tuple[Shape, ...]",
    architecture: str | None,
    trust: bool,
    zoo: str | None,
    as_json: bool,
    **meta: Any,
) -> None:
    """Explain which parent a model would get, and why the others would not be it.

    QUERY is as for `modelkeeper query`. Nothing is written or counted; more candidates are looked at than
    the choice needs.

    \b
      modelkeeper explain my_models:resnet20 --task classification
      modelkeeper explain resnet20.json --policy buckets
    """
    given = Given(shapes, trust, architecture)
    with waiting("asking the zoo", silent=as_json):
        loan = _ask(model, given, zoo, meta, runners_up=True)
    _report(loan, as_json, most=20)


def _ask(
    source: str,
    given: Given,
    zoo: str | None,
    meta: dict[str, Any],
    *,
    output: str | None = None,
    runners_up: bool = False,
) -> "Loan":
    """Query the zoo for a model, and write the weights to a file if one is named."""
    from modelkeeper.coordinator.verifying import checked_query
    from modelkeeper.meta import read_query
    from modelkeeper.settings import Settings
    from modelkeeper.signing.trusted import Trusted

    asked = read_query({key: value for key, value in meta.items() if value not in (None, (), False)})
    model: object = None
    if output is not None and output.lower().endswith(ONNX) and not source.lower().endswith(ONNX):
        raise click.UsageError(f"{source} is no ONNX file, so none can be written: name a .safetensors file.")
    if output is not None and output.lower().endswith(OTHERS):
        raise click.UsageError(f"{output}: weights are written as safetensors: name a .safetensors file.")
    if is_graph(source):
        graph = read_graph(source)
    else:
        opened = open_model(source, given, program=False)
        model, graph = opened.model, opened.graph
    with opened_zoo(zoo, make=True) as coordinator:
        trusted, dry_run = Trusted.of(Settings.read().trusted), output is None
        loan = checked_query(
            coordinator, graph, asked, trusted=trusted, dry_run=dry_run, runners_up=runners_up
        )
        if output is not None and not loan.answer.cold:
            _write(output, graph, loan, model)
    return loan


def _report(loan: "Loan", as_json: bool, most: int | None = None) -> None:
    """Print the answer to a query; a cold start has an exit code of its own."""
    answer = loan.answer
    if as_json:
        echo_json(answer.to_dict())
    else:
        from modelkeeper.warmstart.report import MOST_SHOWN, report

        console().print(report(answer, most or MOST_SHOWN))
    if answer.cold:
        click.get_current_context().exit(COLD_START)


def _write(path: str, graph: "Graph", loan: "Loan", model: object) -> None:
    """Write the weights beside, and rename: a file is whole or not there."""
    from modelkeeper.weights import Header, stream

    if path.lower().endswith(ONNX):
        save_model_file(model, path, loan.weights())
        return
    lent = dict(loan.weights())
    tensors: Iterable[tuple[str, Array]] = lent.items()
    if model is not None:
        from modelkeeper.frontends import frontend_for

        frontend = frontend_for(model)
        tensors = list(frontend.read(frontend.load(model, lent)))
    named = [(name, graph.tensors[name].dtype, graph.tensors[name].shape) for name, _ in tensors]
    header = Header.of(named, {"format": "pt" if graph.framework == "torch" else "np"})
    scratch = Path(path).with_name(f".{Path(path).name}.{secrets.token_hex(4)}")
    try:
        with scratch.open("xb") as file:
            file.writelines(stream(header, tensors))
        scratch.replace(path)
    except OSError as problem:
        scratch.unlink(missing_ok=True)
        raise click.FileError(path, problem.strerror or str(problem)) from problem


@click.command()
@click.argument("model")
@click.option(
    "--model",
    "architecture",
    metavar="QUERY",
    help="Of a file of weights, the architecture: a factory or a graph. Default: graph.json beside the file.",
)
@click.option("--accuracy", type=float, help="How good the model is, as a fraction or in percent.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another metric, e.g. val_loss=0.31. If its name does not tell which way is better, say so: "
    "elo=1510:higher, stress=0.2:lower.",
)
@click.option("--data", help="The data set that it was trained on.")
@click.option("--task", help="What it was trained for.")
@click.option("--tag", "tags", multiple=True, help="A tag, to be found by.")
@click.option("--name", help="What it is called. Default: the model's class, or the name of the file.")
@click.option(
    "--parent", multiple=True, metavar="ID", help="The model that it started from; several: all of them."
)
@click.option("--project", help="The project that it belongs to. Default: if you have just one, that.")
@click.option(
    "--visibility", help="Who may see it: public, project or private. Default: its project, if it has one."
)
@click.option("--licence", help="What others may do with it: an SPDX expression, e.g. Apache-2.0.")
@shapes_option(_INPUT)
@trust_option
@zoo_option
@json_option("Print what became of it as JSON.")
def register(
    model: str,
    architecture: str | None,
    metrics: tuple[str, ...],
    shapes: "tuple[Shape, ...]",
    trust: bool,
    zoo: str | None,
    as_json: bool,
    **meta: Any,
) -> None:
    """Take a trained model into the zoo.

    MODEL is a file of its weights (safetensors, or of torch.save: a state_dict or a checkpoint), with --model
    for its architecture; a whole model (.onnx, .keras, .pt2, a folder of Hugging Face, MLflow or a zoo); or a
    factory, as for `modelkeeper describe`, that makes a trained model. Many at once: `modelkeeper import`.

    How good it is should be said, or lie beside it: a model of unknown quality is rarely chosen.

    A model that is far below its peers is refused: exit code 4.

    \b
      modelkeeper register trained.safetensors --model my_models:resnet20 --data Flowers102 \\
          --task classification --accuracy 0.93
      modelkeeper register my_models:trained --metric val_loss=0.31 --tag nightly
      modelkeeper register checkpoint.pt --model my_models:resnet20 --accuracy 0.93
      modelkeeper register model.onnx --accuracy 0.9 --data Flowers102
      modelkeeper register other_zoo/models/3fa9c2d1e0b4a567
    """
    from modelkeeper.connection import login
    from modelkeeper.meta import read_registration
    from modelkeeper.settings import Settings
    from modelkeeper.weights import Header
    from modelkeeper.zoo.signatures import signer_of
    from modelkeeper.zoo.zoo import stored_tensors

    said = {key: value for key, value in meta.items() if value not in (None, ())} | _measured(metrics)
    with waiting("describing", silent=as_json):
        opened = open_model(model, Given(shapes, trust, architecture))
    found = opened.meta
    if set(said) & {"accuracy", "metric", "metrics"}:
        found = {key: value for key, value in found.items() if key not in ("metric", "metrics")}
    registration = read_registration(found | said, opened.name, measured=False)
    shown = progress("registering", in_bytes=True, silent=as_json)
    with opened_zoo(zoo, make=True) as coordinator, shown as bar:
        registered = coordinator.register(
            opened.graph,
            registration,
            _counted(opened.tensors, Header.of(stored_tensors(opened.graph)).data_bytes, bar),
            owner=login(),
            program=opened.program,
            sign=signer_of(Settings.read(), login()),
        )
    if as_json:
        echo_json(registered.to_dict())
    else:
        from modelkeeper.cli import tables

        console().print(tables.registered(registered, (*opened.notes, *_about(registration.licence))))
    if registered.record.id in registered.evicted:
        click.get_current_context().exit(REFUSED)


def _about(licence: str) -> list[str]:
    """What to know of a licence."""
    from modelkeeper.zoo.licences import unknown_licences

    return [f"{name} is no licence that SPDX knows" for name in unknown_licences(licence)]


def _measured(metrics: tuple[str, ...]) -> dict[str, Any]:
    """`val_loss=0.31` and `elo=1510:higher`, as `meta` says them."""
    meta: dict[str, Any] = {}
    for text in metrics:
        name, equals, rest = text.partition("=")
        value, colon, direction = rest.partition(":")
        try:
            number = float(value)
        except ValueError:
            equals = ""
        if not equals or (colon and direction not in ("lower", "higher")):
            raise InvalidMeta(
                "--metric", repr(text), "give NAME=VALUE, e.g. val_loss=0.31 or elo=1510:higher"
            )
        if colon:
            meta["metric"] = {"name": name, "value": number, "lower_is_better": direction == "lower"}
        else:
            meta.setdefault("metrics", {})[name] = number
    return meta


def _counted(
    tensors: "Iterable[tuple[str, Array]]", total: int, bar: Callable[[float, float], None]
) -> "Iterator[tuple[str, Array]]":
    """The same tensors, while a bar shows how many bytes have gone."""
    done = 0
    for name, array in tensors:
        yield name, array
        done += array.nbytes
        bar(done, total)


COMMANDS = (query, explain, register)
