"""What does a model's folder say to people who do not use modelkeeper?

`README.md` is a model card with the front matter that model hubs read; `config.json` is the record. With
`model.safetensors` beside them, the folder can be used as it is:

    model.load_state_dict(safetensors.torch.load_file("model.safetensors"))
"""

import json
from datetime import UTC, datetime
from string import punctuation

from modelkeeper.text import enumeration, one_line, with_article
from modelkeeper.zoo.records import Record


def config(record: Record) -> bytes:
    """The record as JSON. What changes later (hits, state) is in the catalog alone."""
    changing = {"hits", "last_used", "state", "reason", "pinned", "twin", "twin_similarity", "notes"}
    lasting = {name: value for name, value in record.to_dict().items() if name not in changing}
    return json.dumps({"format": "modelkeeper.model", "version": 1, **lasting}, indent=2).encode() + b"\n"


def card(record: Record) -> bytes:
    """A model card: what it is, how good it is, where it comes from."""
    front = [
        "---",
        f"library_name: {_yaml(record.framework)}",
        f"pipeline_tag: {_yaml(record.task)}" if record.task else "",
        f"license: {_yaml(record.licence)}" if record.licence else "",
        "datasets:" if record.data else "",
        f"- {_yaml(record.data)}" if record.data else "",
        "tags:",
        *(f"- {_yaml(tag)}" for tag in ("modelkeeper", *record.tags)),
        "---",
    ]
    created = datetime.fromtimestamp(record.created, UTC)
    came = "trained from its own initial values"
    if record.parents:
        near = f" (similarity {record.similarity:.3f})" if record.similarity is not None else ""
        named = [f"`{parent}`" for parent in record.parents]
        named[0] += near
        came = f"warm-started from {'model' if len(named) == 1 else 'models'} {enumeration(named)}"
    measured = [f"| {_cell(name)} | {value:.6g} |" for name, value in sorted(record.metrics.items())]
    body = [
        f"# {_cell(record.name)}",
        "",
        f"A{with_article(_cell(record.framework))[1:]} model with {record.parameters:,} parameters, {came}.",
        "",
        *(["| metric | value |", "| --- | --- |", *measured, ""] if measured else []),
        *([f"Licence: {_cell(record.licence)}.", ""] if record.licence else []),
        f"Registered by {_cell(record.owner)} on {created:%Y-%m-%d} as `{record.id}`. `graph.json` holds its",
        f"architecture (fingerprint `{record.fingerprint}`), `config.json` the rest of its record.",
    ]
    return "\n".join([line for line in front if line] + body).encode() + b"\n"


def _yaml(text: str) -> str:
    return json.dumps(text)  # JSON strings are YAML strings


def _cell(text: str) -> str:
    """Text of users as text: one line, and no markup of theirs becomes markup of ours."""
    return "".join(f"\\{letter}" if letter in punctuation else letter for letter in one_line(text))
