"""From a thing to a model that can be registered: read, described, with all that its files say.

opened = open_thing(thing, Terms(factory=Factory("my_models:make")))
opened.graph, opened.tensors, opened.meta, opened.program
"""

from typing import TYPE_CHECKING

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.things import Opened, Source, Terms, Thing

if TYPE_CHECKING:
    from pathlib import Path


def only_thing(path: "Path") -> Thing:
    """The one model that a file or a folder holds.

    Raises:
        InvalidModelFile: There is none, or there are several.
    """
    from modelkeeper.importing.scan import find

    things = list(find(path))
    if len(things) == 1:
        return things[0]
    if not things:
        raise InvalidModelFile(str(path), "there is no model of a known kind in it", "Give another folder")
    advice = "Name one of them, or take all of them in with `modelkeeper import`"
    named = ", ".join(str(thing.path) for thing in things[:3])
    raise InvalidModelFile(str(path), f"it holds {len(things)} models: {named}", advice)


def read_thing(thing: Thing, terms: Terms) -> Source:
    """What a thing holds, not described yet.

    Raises:
        ModelKeeperError: It cannot be used; the message says what to do.
    """
    from modelkeeper.importing.kinds import KINDS

    if thing.problem:
        raise InvalidModelFile(str(thing.path), thing.problem, thing.advice)
    source = KINDS[thing.kind].open(thing, terms)
    source.meta, source.name = {**thing.meta, **source.meta}, thing.name
    return source


def open_thing(thing: Thing, terms: Terms, *, program: bool = True) -> Opened:
    """Read a thing and describe its model.

    Args:
        thing: What `scan` found.
        terms: How it is opened.
        program: Write down what the model computes, too, for those who calibrate.

    Raises:
        ModelKeeperError: It cannot be used; the message says what to do.
    """
    return described(read_thing(thing, terms), terms, program=program)


def described(source: Source, terms: Terms, *, program: bool = True) -> Opened:
    """A model that was read, with its graph.

    Raises:
        CannotDescribe: It did not run on the inputs there were.
    """
    from modelkeeper.connection import program_of
    from modelkeeper.frontends import frontend_for
    from modelkeeper.tracing.describe import describe

    meta = dict(source.meta)
    if source.graph is not None:
        tensors = source.tensors or ()
        return Opened(source.name, source.graph, tensors, meta, source.program, source.notes)
    frontend = frontend_for(source.model)
    inputs = tuple(frontend.example(shape.sizes, shape.dtype) for shape in terms.shapes) or source.inputs
    trace = frontend.trace(source.model, inputs)
    recorded = source.program
    if program and not recorded:
        recorded = program_of(frontend, source.model, trace.ran_on if inputs is None else inputs)
    name = source.name or type(source.model).__name__
    tensors = frontend.read(source.model)
    return Opened(name, describe(trace), tensors, meta, recorded, source.notes, source.model)
