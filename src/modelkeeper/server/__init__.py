"""A coordinator behind HTTP, for a team or a cluster. Needs no deep-learning framework.

`app` puts the parts together, `running` runs them; `modelkeeper.coordinator.wire` says what travels.
"""
