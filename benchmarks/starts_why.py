"""Why does a job start cold, or slowly? A cause for each of the worst. `python -m benchmarks.starts_why`

benchmarks/results/starts-why.json holds the 192 jobs of an evaluation: what was trained on what, how good
that became, how many steps it took from scratch and with the keeper to 99 % of that, and which job lent. From
these the zoos are built again, with networks as initialised: alignments, plans and expected benefits need no
trained weights. Each job that started cold, but for the first of a sequence, and the WORST of the approximate
starts then says, by the code as it is today: who is the best candidate, what does the plan doubt, and why.
Writes benchmarks/results/starts-why.md.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from benchmarks.training.workloads import Job
from modelkeeper import ModelKeeperClient
from modelkeeper.frontends.torch import describe
from modelkeeper.matching import align
from modelkeeper.policy.selection.base import Candidate
from modelkeeper.policy.selection.benefit import fidelity
from modelkeeper.transform import Plan, make_plan, planner
from modelkeeper.warmstart.answer import Answer

RESULTS = Path(__file__).parent / "results"
WORST = 30
Row = dict[str, Any]
# What a doubt says, in one or two words; the first that an eighth of the doubts say is the cause.
DOUBTS = (
    ("shallower chain", r" in one, as if"),
    ("other form", r"made up differently|kernel size|meets several"),
    ("norm", r"no multiple|layer norm makes|normalises what"),
    ("narrower", r"units became .*"),
    ("layers dropped", r"is not used"),
    ("layers added", r"has no partner|parent has no such"),
    ("rewired", r""),
)
INTRODUCTION = """\
Made by `python -m benchmarks.starts_why` from the jobs in starts-why.json. Steps to 99 % of the plateau, from
scratch and with the keeper, are of the evaluation that these jobs come from; who lends, what the plan doubts
and what the keeper would choose now are of the code as it is. Fidelity: how much of the parent `benefit`
expects to survive, 1 where nothing is lost. For a cold start, the lender is the best candidate of all."""


class Sequence:
    """The zoo of one sequence of jobs, as it grows: for a client as users have it, one that takes anybody."""

    def __init__(self) -> None:
        settings: dict[str, Any] = {"on_error": "raise", "threads": 1}
        self.usual = ModelKeeperClient(":memory:", **settings)
        self.any = ModelKeeperClient(":memory:", minimum_benefit=0.0, minimum_similarity=0.0, **settings)
        self.jobs: dict[int, Job] = {}

    def why(self, row: Row) -> Row:
        """What a job gets, from whom, and what is wrong with it."""
        job = Job(row["spec"], row["data"])
        model = job.build(0)
        now, best = (self._ask(client, model, job) for client in (self.usual, self.any))
        lender: int | None = row["parent"]
        if lender is None and best.parent_name:
            lender = int(best.parent_name)
        found = row | {"now": now.parent_name or "cold", "now_exact": now.exact, "lender": lender}
        if lender is not None:
            found |= self._lent(self.jobs[lender], job, model)
        for client in (self.usual, self.any):
            client.register_model(
                model, meta=_about(job) | {"accuracy": row["score"], "name": str(row["job"])}
            )
        self.jobs[row["job"]] = job
        return found

    def _ask(self, client: ModelKeeperClient, model: nn.Module, job: Job) -> Answer:
        return client.query_for_model(model, meta=_about(job), dry_run=True)[1]

    def _lent(self, parent: Job, job: Job, model: nn.Module) -> Row:
        theirs, ours = describe(parent.build(0)), describe(model)
        alignment = align(theirs, ours)
        with patch.object(planner, "MOST_DOUBTS", sys.maxsize):
            plan = make_plan(theirs, ours, alignment, same_task=parent.data == job.data)
        normed = any(layer.kind == "batch_norm" for layer in ours.layers)
        candidate = Candidate(
            id="",
            name="",
            similarity=alignment.similarity,
            exact=plan.exact,
            rewired=plan.rewired,
            normed=normed,
        )
        return {
            "from": _name(parent.spec) + ("" if parent.data == job.data else f", {parent.data}"),
            "similarity": alignment.similarity,
            "fidelity": fidelity(candidate),
            "cause": cause(plan, parent, job, {each.spec["kind"] for each in self.jobs.values()}),
            "doubts": summary(plan),
        }


def _about(job: Job) -> dict[str, Any]:
    return {"data": job.data, "task": "language" if job.data == "speeches" else "classification"}


def cause(plan: Plan, parent: Job, job: Job, kinds: Collection[str]) -> str:
    """In one word or two; `kinds` are those that the zoo held by then."""
    if parent.data != job.data:
        return "other data"
    if job.spec["kind"] not in kinds:
        return "first of its kind"
    if parent.spec["kind"] != job.spec["kind"]:
        return "other family"
    if plan.exact:
        return "exact now"
    counts = Counter(_kind(doubt) for doubt in plan.doubts)
    return next(name for name, _ in DOUBTS if 8 * counts[name] >= counts.total())


def _kind(doubt: str) -> str:
    return next(name for name, pattern in DOUBTS if re.search(pattern, doubt))


def summary(plan: Plan) -> str:
    """How many doubts of each kind, most frequent first."""
    kinds = Counter(_kind(doubt) for doubt in plan.doubts)
    return ", ".join(f"{count} {name}" for name, count in kinds.most_common())


def _name(spec: Row) -> str:
    if "cell" in spec:
        return "cell " + " ".join(operation[:2] + operation[-1] for operation in spec["cell"])
    return " ".join(str(value) for value in spec.values())


def page(colds: list[Row], worst: list[Row]) -> str:
    """For people."""
    lines = ["# Why starts are cold or slow", "", INTRODUCTION]
    for title, rows in (
        ("Cold starts after the first job", colds),
        (f"The {len(worst)} slowest approximate starts", worst),
    ):
        lines += ["", f"## {title}", "", *_table(rows), "", *_sums(rows)]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> list[str]:
    lines = [
        "| job | model | lender or best candidate | scratch | keeper | similarity | fidelity | cause "
        "| what the plan doubts | chosen now |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for row in rows:
        known = "from" in row
        cells = [
            f"{row['workload']}-{row['seed']}, {row['job']}",
            _name(row["spec"]) + ("" if row["data"] in ("fashion-mnist", "speeches") else f", {row['data']}"),
            f"{row['from']} (job {row['lender']})" if known else "",
            str(row["scratch"]),
            str(row["warm"]),
            f"{row['similarity']:.2f}" if known else "",
            f"{row['fidelity']:.2f}" if known else "",
            row.get("cause", "nobody"),
            row.get("doubts", ""),
            row["now"]
            if row["now"] == "cold"
            else f"job {row['now']}" + (", exact" if row["now_exact"] else ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _sums(rows: list[Row]) -> list[str]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        added = (1, row["scratch"], row["warm"])
        sums[row.get("cause", "nobody")] = [
            a + b for a, b in zip(sums[row.get("cause", "nobody")], added, strict=True)
        ]
    ranked = sorted(sums.items(), key=lambda item: -item[1][2])
    return [
        "| cause | jobs | steps from scratch | with the keeper |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {name} | {count} | {scratch:,} | {warm:,} |" for name, (count, scratch, warm) in ranked),
    ]


def main() -> None:
    """All sequences."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--dry-run", action="store_true", help="print, and write no file")
    dry_run = options.parse_args().dry_run
    torch.set_num_threads(1)
    sequences: dict[tuple[str, int], Sequence] = defaultdict(Sequence)
    jobs: list[Row] = json.loads((RESULTS / "starts-why.json").read_text())
    rows = [sequences[row["workload"], row["seed"]].why(row) for row in jobs]
    colds = [row for row in rows if row["parent"] is None and row["job"]]
    approximate = [row for row in rows if row["parent"] is not None and not row["exact"]]
    by_steps = sorted(approximate, key=lambda row: -row["warm"])
    text = page(sorted(colds, key=lambda row: -row["warm"]), by_steps[:WORST])
    print(text)
    if not dry_run:
        (RESULTS / "starts-why.md").write_text(text)


if __name__ == "__main__":
    main()
