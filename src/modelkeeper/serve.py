"""The service for Ray Serve: `serve run modelkeeper.serve:app`, set by the MODELKEEPER_* variables.

How many replicas there are, and all else that Serve lets be set, a config of Serve says (`serve build
modelkeeper.serve:app`), or your own program: see `integrations.ray.deployment`.
"""

from modelkeeper.integrations.ray.serving import deployment

app = deployment().bind()
