"""Does ModelKeeper shorten training? Workloads, arms, runs and the report on them. `make evaluate`"""
