"""Other zoos that a coordinator asks where its own has nothing good: what travels there, what may come back.

coarse.py      what of a model and of a query travels
line.py        one conversation with an upstream, within a time
taking.py      a model of theirs becomes one of this zoo
upstreams.py   whom to ask, when, and when not again
"""
