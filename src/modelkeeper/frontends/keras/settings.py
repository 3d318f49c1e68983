"""How is a layer or an operation set that nobody understands? A short text: equal if it is set alike.

Names, seeds and what matters in training alone are left out, and so are dtypes: they say nothing of what is
computed.
"""

import hashlib
import json
from typing import Any

_UNSAID = frozenset(
    "name dtype trainable seed build_config registered_name module dropout recurrent_dropout".split()
)
_TRAINING = ("_initializer", "_regularizer", "_constraint")


def settings_of(operation: Any) -> str:
    """A short text of the settings of a layer or an operation; "" if it has none."""
    try:
        settings = operation.get_config()
    except Exception:  # noqa: BLE001 (a layer's own code: what it was given may not be known)
        plain = (bool, int, float, str)
        settings = {key: value for key, value in vars(operation).items() if isinstance(value, plain)}
    said = _said(settings)
    if not said:
        return ""
    text = json.dumps(said, sort_keys=True, default=lambda thing: type(thing).__name__)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _said(settings: Any) -> Any:
    """What of the settings says what is computed, layers within layers too."""
    if isinstance(settings, dict):
        return {
            str(key): _said(value)
            for key, value in settings.items()
            if key not in _UNSAID and not str(key).endswith(_TRAINING)
        }
    if isinstance(settings, (list, tuple)):
        return [_said(value) for value in settings]
    return settings
