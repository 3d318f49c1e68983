"""How do lines come into a log? Each message is one line, and nothing in it steers a terminal that shows it.

    log = logger("modelkeeper.zoo")

Who configures no logging sees warnings on their terminal as they are: so they are cleaned before any handler
has them. Tracebacks keep their lines.
"""

import logging
import traceback

from modelkeeper.text import one_line, printable


class Cleaning(logging.Filter):
    """Lets everything pass, cleaned."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean a record once, whoever wrote what it says."""
        record.msg, record.args = one_line(record.getMessage()), None
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = printable("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return True


def logger(name: str = "modelkeeper") -> logging.Logger:
    """The logger of this name; what is logged by it is clean."""
    found = logging.getLogger(name)
    if not any(isinstance(each, Cleaning) for each in found.filters):
        found.addFilter(Cleaning())
    return found
