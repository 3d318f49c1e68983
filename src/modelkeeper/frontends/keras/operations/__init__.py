"""Operations of programs, carried out by keras.ops on the active backend: one function for each.

Each does what ATen's operation of that name does, on arrays with channels first. Importing a file of this
package adds its functions to the table.
"""

from modelkeeper.frontends.keras.operations import along_axes, layers, pointwise, recurrent, shape, windows
from modelkeeper.frontends.keras.operations.table import FUNCTIONS

assert all((along_axes, layers, pointwise, recurrent, shape, windows))  # importing them fills the table
__all__ = ["FUNCTIONS"]
