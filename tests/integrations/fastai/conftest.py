"""What fastai warns of when it is imported is no warning of ours: it is imported here first, if it is there."""

import contextlib
import warnings

with warnings.catch_warnings(), contextlib.suppress(ModuleNotFoundError):
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated, and more of the kind
    import fastai.callback.schedule
    import fastai.callback.tracker
    import fastai.metrics  # noqa: F401
