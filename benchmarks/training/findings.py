"""What did the studies find? Tables from their records."""

from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.training.loop import EVERY
from benchmarks.training.measures import Record, counted, steps_to
from benchmarks.training.run import records
from benchmarks.training.workloads import WORKLOADS

Key = tuple[str, int, int]


def parts(folder: Path) -> dict[str, str]:
    """The tables by name; those of studies that have not been run are missing."""
    makers = {
        "selection": ("parents", selection_table),
        "ablations": ("ablations", ablation_table),
        "poor": ("ablations", poor_sentence),
        "undertrained": ("undertrained", undertrained_table),
        "schedules": ("schedules", schedules_table),
        "other data": ("others", others_table),
        "memorised": ("memorised", memorised_table),
    }
    found = {name: (records(folder / f"study-{study}.jsonl"), make) for name, (study, make) in makers.items()}
    return {name: make(these) for name, (these, make) in found.items() if these}


def key_of(record: Record) -> Key:
    """Which job it is."""
    return record["workload"], record["seed"], record["job"]


def charged(record: Record) -> int:
    """The steps to 99 % of the run from scratch."""
    return counted(record, 0.99 * record["target"], record["budget"])


def grouped(these: list[Record]) -> dict[Key, list[Record]]:
    """By job."""
    by: dict[Key, list[Record]] = defaultdict(list)
    for each in these:
        by[key_of(each)].append(each)
    return by


def selection_table(these: list[Record]) -> str:
    """For each job: what each policy chose, the best there was, and what predicted the order."""
    from scipy.stats import spearmanr

    lines = [
        "| job | parents | from scratch | best parent | buckets | benefit | ρ similarity | ρ accuracy "
        "| ρ benefit |",
        "| --- |" + " ---: |" * 8,
    ]
    regrets: dict[str, list[float]] = defaultdict(list)
    rhos: dict[str, list[float]] = defaultdict(list)
    for (workload, seed, job), mine in sorted(grouped(these).items()):
        scratch = next((each for each in mine if each["variant"] == "scratch"), None)
        tried = {each["variant"]: charged(each) for each in mine if each["variant"] != "scratch"}
        if scratch is None or len(tried) < 2:
            continue
        known, chosen = scratch["known"], scratch["chosen"]
        best = min(tried.values())
        cells = []
        for policy in ("buckets", "benefit"):
            taken = tried.get(str(chosen[policy]), charged(scratch))
            regrets[policy].append(taken / best)
            cells.append(f"{taken}")
        for what in ("similarity", "score", "benefit"):
            rho = spearmanr(
                [known[each][what] for each in tried], [-steps for steps in tried.values()]
            ).statistic
            if rho == rho:
                rhos[what].append(float(rho))
            cells.append(f"{rho:.2f}")
        title = _title(workload, seed, job)
        lines.append(f"| {title} | {len(tried)} | {charged(scratch)} | {best} | " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    if regrets:
        parts = "; ".join(f"{policy} {mean(each):.2f}, {max(each):.2f}" for policy, each in regrets.items())
        text += f"\n\nSteps taken relative to the best parent, mean and worst: {parts}. "
        parts = "; ".join(f"{what} {mean(each):.2f}" for what, each in rhos.items())
        text += f"Mean rank correlation with the realised speed-up: {parts}."
    return text


def ablation_table(these: list[Record]) -> str:
    """Each variant against all of it, on the same jobs."""
    variants = list(dict.fromkeys(each["variant"] for each in these))
    lines = ["| variant | jobs | steps, relative to all of it | median | never |", "| --- |" + " ---: |" * 4]
    for variant in variants:
        pairs = paired(these, variant, "all")
        never = sum(steps_to(other, 0.99 * other["target"]) is None for other, _ in pairs)
        steps = [(charged(other), charged(whole)) for other, whole in pairs]
        middle = median(a / b for a, b in steps)
        lines.append(f"| {variant} | {len(pairs)} | {relative(pairs):.2f} | {middle:.2f} | {never} |")
    return "\n".join(lines)


def poor_sentence(these: list[Record]) -> str:
    """What poor models in the zoo cost: because good ones are missing, and because poor ones are taken."""
    found = []
    for share in ("20%", "50%"):
        lost, missing = paired(these, f"{share} poor", "all"), paired(these, f"{share} removed", "all")
        if not lost or not missing:
            continue
        both = paired(these, f"{share} poor", f"{share} removed")
        same = sum(one["parent"] == other["parent"] for one, other in both)
        found.append(
            f"With {share[:-1]} % of the zoo poor, ModelKeeper takes {relative(lost):.2f} times the steps "
            f"({len(lost)} jobs); if these models are not there at all, {relative(missing):.2f} times, "
            f"with the same parent in {same} of {len(both)} jobs."
        )
    return " ".join(found) or "(not run)"


def paired(these: list[Record], variant: str, base: str) -> list[tuple[Record, Record]]:
    """On each job that both were run on, one variant and another."""
    jobs = [{each["variant"]: each for each in mine} for mine in grouped(these).values()]
    return [(by[variant], by[base]) for by in jobs if variant in by and base in by]


def relative(pairs: list[tuple[Record, Record]]) -> float:
    """The steps that the first of each pair take in all, relative to the second."""
    return sum(charged(one) for one, _ in pairs) / sum(charged(other) for _, other in pairs)


def undertrained_table(these: list[Record]) -> str:
    """Parents of fewer and fewer steps: how far below the plateau they are, and what they save."""
    lines = [
        "| parent | exact | jobs | its score / plateau | start / plateau | steps, relative to scratch |",
        "| --- | --- |" + " ---: |" * 4,
    ]
    for exact in (True, False):
        for variant in dict.fromkeys(each["variant"] for each in these if each["variant"] != "scratch"):
            pairs = [pair for pair in paired(these, variant, "scratch") if pair[0]["exact"] == exact]
            if not pairs:
                continue
            score = mean(one["score"] / one["target"] for one, _ in pairs)
            start = mean(one["scores"][0] / one["target"] for one, _ in pairs)
            lines.append(
                f"| {variant} | {'yes' if exact else 'no'} | {len(pairs)} | {score:.3f} | {start:.3f} | "
                f"{relative(pairs):.2f} |"
            )
    return "\n".join(lines)


def schedules_table(these: list[Record]) -> str:
    """Job by job: the score at the end of a schedule that decays, and of shorter ones."""
    variants = list(dict.fromkeys(each["variant"] for each in these))
    lines = [
        "| job | parent / plateau | exact | " + " | ".join(variants) + " |",
        "| --- | ---: | --- |" + " ---: |" * len(variants),
    ]
    gained: dict[str, list[float]] = defaultdict(list)
    for (workload, seed, job), mine in sorted(grouped(these).items()):
        by = {each["variant"]: each for each in mine}
        whole = by["scratch, all of it"]["scores"][-1]
        warm = next((each for each in mine if each["parent"] is not None), None)
        if warm is None:
            continue
        for variant, each in by.items():
            gained[variant].append(each["scores"][-1] / whole - 1)
        cells = " | ".join(f"{by[v]['scores'][-1]:.3f}" if v in by else "" for v in variants)
        lines.append(
            f"| {_title(workload, seed, job)} | {warm['score'] / warm['target']:.3f} | "
            f"{'yes' if warm['exact'] else 'no'} | {cells} |"
        )
    means = " | ".join(f"{100 * mean(gained[v]):+.1f} %" for v in variants)
    lines.append(f"| mean, relative to all of it from scratch | | | {means} |")
    return "\n".join(lines)


def others_table(these: list[Record]) -> str:
    """Parents of other data sets only."""
    lines = [
        "| job | start with | steps to 99 % | best score | plateau from scratch |",
        "| --- | --- |" + " ---: |" * 3,
    ]
    for (workload, seed, job), mine in sorted(grouped(these).items()):
        lines += [
            f"| {_title(workload, seed, job)} | {each['variant']} | {_or_never(each)} | "
            f"{max(each['scores']):.3f} | {each['target']:.3f} |"
            for each in mine
        ]
    return "\n".join(lines)


def memorised_table(these: list[Record]) -> str:
    """A parent that knows its pictures by heart."""
    by: dict[str, list[Any]] = defaultdict(list)
    for each in these:
        by[each["variant"]].append(each)
    targets = {each["seed"]: max(each["scores"]) for each in by["scratch"]}
    lines = [
        "| start | parent: train, validation | after 100 steps | after the budget | steps to 99 % |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for variant, mine in by.items():
        parent = ""
        if "score" in mine[0]:
            parent = f"{mean(e['train'] for e in mine):.3f}, {mean(e['score'] for e in mine):.3f}"
        early = mean(e["scores"][e["steps"].index(5 * EVERY)] for e in mine)
        late = mean(mean(e["scores"][-3:]) for e in mine)
        steps = ", ".join(
            str(steps_to(e, 0.99 * targets[e["seed"]]) or "never") for e in mine if e["seed"] in targets
        )
        lines.append(f"| {variant} | {parent} | {early:.3f} | {late:.3f} | {steps} |")
    return "\n".join(lines)


def _title(workload: str, seed: int, job: int) -> str:
    return f"{WORKLOADS[workload].title}, seed {seed}, job {job}"


def _or_never(record: Record) -> str:
    found = steps_to(record, 0.99 * record["target"])
    return "never" if found is None else str(found)
