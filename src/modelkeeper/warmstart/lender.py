"""A parent that lends: what is needed to run it beside its child."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelkeeper.errors import NoProgram
from modelkeeper.frontends.protocol import Runner
from modelkeeper.transform import Plan
from modelkeeper.weights import Array


@dataclass(frozen=True)
class Lender:
    """A parent, for whoever wants to run it beside the child: the plan, its own tensors, and its program."""

    plan: Plan
    tensors: Mapping[str, Array]
    program: bytes | None
    parent: Any = None  # the parent itself, or a program as its front end has it, where it is in this process

    @property
    def runs(self) -> bool:
        """Is there something to run?"""
        return self.parent is not None or self.program is not None

    def runnable(self, runner: Runner, name: str) -> Any:
        """The parent, or its program, for `Runner.calibrate`. `name`: what the parent is called.

        Raises:
            NoProgram: There is none.
            InvalidProgram: Its bytes are no program.
        """
        if self.parent is not None:
            return self.parent
        if self.program is None:
            raise NoProgram(name, "it was registered without one")
        return runner.read_program(self.program)
