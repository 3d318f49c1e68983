"""A coordinator behind HTTP, for a team or a cluster. Needs no deep-learning framework.

`app` puts the parts together, `serve` runs them, `routes` answer requests;
`modelkeeper.coordinator.wire` says what travels.
"""
