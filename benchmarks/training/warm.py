from benchmarks.training.sequence import Sequence


def run(*a):
    raise NotImplementedError


def total(*a):
    return 0
