"""What is a deployed service made of? A bill of materials in CycloneDX, into dist/.

    python -m release.sbom        `make sbom`

What deploy/requirements.txt pins is installed, hash by hash, as the container does it; cyclonedx-py reads
names, versions and licences from there. Then come the files of others that are kept in the repository.
"""

import json
import sys
from typing import Any

from release.environments import ROOT, Environment, find, run
from tests.helpers.vendored import KEPT, SHOWN

DIST, BUILD = ROOT / "dist", ROOT / "build" / "sbom"
TOOL = ROOT / "release" / "sbom.txt"
# The licences of what is kept, as their files beside them say.
LICENCES = {"axe-core": "MPL-2.0", "iframe-worker": "MIT", "uplot": "MIT"}


def main() -> None:
    """Write the bill, and say how long it is."""
    python = find((3, 11), (3, 12))
    if python is None:
        sys.exit("deploy/requirements.txt is for Python 3.11, and there is none.")
    tools = Environment.make(BUILD / "tools", python)
    tools("-m", "pip", "install", "-qq", "--disable-pip-version-check", "-r", TOOL)
    deployed = BUILD / "deployed"
    run([python, "-m", "venv", "--clear", "--without-pip", deployed])
    inside = Environment(deployed).python
    options = "install -qq --disable-pip-version-check --require-hashes --only-binary :all: -r".split()
    tools("-m", "pip", "--python", inside, *options, ROOT / "deploy" / "requirements.txt")
    raw = BUILD / "raw.json"
    command = (
        "-m cyclonedx_py environment --output-reproducible --mc-type application --of JSON --sv 1.6".split()
    )
    tools(*command, "--pyproject", ROOT / "pyproject.toml", "-o", raw, inside)
    bill = with_vendored(json.loads(raw.read_text()))
    DIST.mkdir(exist_ok=True)
    version = bill["metadata"]["component"]["version"]
    path = DIST / f"modelkeeper-{version}.cdx.json"
    path.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")
    silent = [one["name"] for one in bill["components"] if not one.get("licenses")]
    print(f"{path.relative_to(ROOT)}: {len(bill['components'])} components")
    if silent:
        sys.exit(f"No licence is known of {', '.join(silent)}")


def with_vendored(bill: dict[str, Any]) -> dict[str, Any]:
    """The bill with what is kept in the repository; what only tests use is marked as excluded."""
    return bill | {"components": [*bill.get("components", []), *map(_component, KEPT)]}


def _component(package: Any) -> dict[str, Any]:
    files: dict[str, str] = dict(package.kept.values())
    shipped = any(where.startswith(SHOWN) for where in files)
    return {
        "type": "library",
        "bom-ref": f"{package.name}=={package.version}",
        "name": package.name,
        "version": package.version,
        "purl": f"pkg:npm/{package.name}@{package.version}",
        "scope": "required" if shipped else "excluded",
        "licenses": [{"license": {"id": LICENCES[package.name]}}],
        "components": [
            {"type": "file", "name": where, "hashes": [{"alg": "SHA-256", "content": digest}]}
            for where, digest in files.items()
        ],
    }


if __name__ == "__main__":
    main()
