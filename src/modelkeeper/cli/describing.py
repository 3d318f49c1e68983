"""Commands about models alone: `describe` one, `diff` two."""

from typing import TYPE_CHECKING

import click

from modelkeeper.cli.model_argument import (
    Given,
    graph_of_any,
    shapes_option,
    trust_option,
)
from modelkeeper.cli.options import (
    console,
    echo_graph,
    echo_json,
    json_option,
    save_drawing,
    svg_option,
    waiting,
    zoo_option,
)

if TYPE_CHECKING:
    from modelkeeper.importing.things import Shape


@click.command()
@click.argument("factory")
@json_option("Print the graph as JSON, the form in which it travels.")
@shapes_option(
    "The shape of an example input, e.g. 1,3,32,32 or int64:1,16; once for each input. "
    "Default: found from the model."
)
@click.option("--model", "architecture", metavar="QUERY", help="Of a file of weights, its factory.")
@trust_option
@zoo_option
def describe(
    factory: str,
    as_json: bool,
    shapes: "tuple[Shape, ...]",
    architecture: str | None,
    trust: bool,
    zoo: str | None,
) -> None:
    """Print the graph of the model that FACTORY makes, that lies in a file or folder, or in a zoo.

    FACTORY is module:name or module:name(arguments). The module is looked for in the current folder too; the
    name is a model, a class, or a function that returns a model; the arguments are Python literals. Or it is
    a path: an ONNX, .keras or .pt2 file, a folder of Hugging Face or MLflow; with --model, of weights. Or a
    model of a zoo, as for `modelkeeper show`: by name, id, or the beginning of one.

    \b
      modelkeeper describe my_models:resnet20
      modelkeeper describe "my_models:make(width=64)" --input 1,3,32,32
      modelkeeper describe model.onnx
      modelkeeper describe ~/.cache/huggingface/hub/models--org--name
      modelkeeper describe ada/resnet20 --zoo zoo/
    """
    with waiting("describing", silent=as_json):
        graph = graph_of_any(factory, Given(shapes, trust, architecture), zoo)
    if as_json:
        echo_graph(graph)
    else:
        from modelkeeper.display.tables import report

        console().print(report(graph))


@click.command()
@click.argument("parent")
@click.argument("child")
@json_option("Print the alignment as JSON.")
@svg_option("Draw what the one would lend to the other.")
@shapes_option("The shape of an example input of both models; see `modelkeeper describe`.")
@trust_option
@zoo_option
def diff(
    parent: str,
    child: str,
    as_json: bool,
    svg: str | None,
    shapes: "tuple[Shape, ...]",
    trust: bool,
    zoo: str | None,
) -> None:
    """Align two models, layer against layer: what could PARENT lend to CHILD?

    PARENT and CHILD are factories or paths, as for `modelkeeper describe`, files that it wrote with --json,
    or models of a zoo, as for `modelkeeper show`: by name, id, or the beginning of one.

    \b
      modelkeeper diff my_models:resnet20 my_models:resnet56
      modelkeeper diff trained.json "my_models:make(width=64)" --json
      modelkeeper diff trained.onnx my_models:resnet56
      modelkeeper diff resnet20 my_models:resnet56 --zoo zoo/
      modelkeeper diff resnet20 resnet56 --svg diff.svg
    """
    from modelkeeper.display.comparison import side_by_side, to_dict
    from modelkeeper.matching import align

    given = Given(shapes, trust)
    with waiting("aligning", silent=as_json):
        first, second = (graph_of_any(each, given, zoo) for each in (parent, child))
        alignment = align(first, second)
    if svg is not None:
        from modelkeeper.transform import make_plan

        save_drawing(make_plan(first, second, alignment).plot(), svg)
    elif as_json:
        echo_json(to_dict(first, second, alignment))
    else:
        console().print(side_by_side((parent, first), (child, second), alignment))


COMMANDS = (describe, diff)
