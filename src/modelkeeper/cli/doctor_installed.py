"""What is installed: versions, extras, the native module, frameworks and their devices?

Each answer is a `Finding`: ok, warn or fail, what was found, and what to do about it. Frameworks are imported
in processes of their own: a broken one takes nothing down, and the command needs none of them.
"""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from msgspec import Struct

from modelkeeper.text import enumeration, first_line

OK, WARN, FAIL = "ok", "warn", "fail"
PATIENCE = 180.0  # seconds for a framework to be imported: on a slow disk some take a minute
MOST_SAID = 300  # letters of what a framework said as it failed
# Extras for who works on modelkeeper, and the ones made of others.
_NOT_SHOWN = {"all", "docs", "evaluation", "lint", "test"}

# What is asked of each framework, in a process of its own: where would it compute?
_DEVICES = {
    "torch": """
import torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
found = [torch.cuda.get_device_name(number) for number in range(count)]
found = found or (["mps"] if torch.backends.mps.is_available() else ["cpu"])
""",
    "tensorflow": """
import tensorflow
found = [device.name for device in tensorflow.config.list_physical_devices()]
""",
    "jax": """
import jax
found = [str(device) for device in jax.devices()]
""",
    "keras": """
import keras
found = ["backend " + keras.backend.backend()]
""",
    "onnx": """
import onnx
found = []
""",
}


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    check: str  # what
    state: str  # ok, warn, fail
    found: str
    advice: str = ""  # what to do, unless all is well


def installed() -> Iterator[Finding]:
    """Everything about this installation."""
    yield _python()
    yield _native()
    yield from _extras()
    yield from _frameworks()


def _python() -> Finding:
    version = metadata.version("modelkeeper")
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {sys.prefix}"
    return Finding(check="modelkeeper", state=OK, found=f"{version}, {where}")


def _native() -> Finding:
    """Is the native module there, and does it compute?"""
    advice = "Install modelkeeper anew, in a clone of it: pip install --force-reinstall --no-deps ."
    try:
        from modelkeeper import _native as native
    except ImportError as problem:
        return Finding(check="native module", state=FAIL, found=first_line(problem), advice=advice)
    return Finding(check="native module", state=OK, found=str(native.__file__))


def requirements(extra: str = "") -> list[str]:
    """What the installed modelkeeper, or an extra of it, asks for; other extras of ours are left out."""
    found = []
    for line in metadata.requires("modelkeeper") or ():
        wanted, _, marker = line.partition(";")
        named = re.findall(r"extra == ['\"]([\w-]+)['\"]", marker)
        if named == ([extra] if extra else []) and not wanted.startswith("modelkeeper"):
            found.append(wanted.strip())
    return found


def unfit(requirement: str) -> str | None:
    """Why a requirement is not met: "" if it is not installed; None: it is met.

    Bounds are compared number by number, which is all that our own requirements need.
    """
    parts = re.match(r"([\w.-]+)(?:\[[\w,-]*\])?\s*(.*)", requirement)
    assert parts is not None, requirement
    try:
        version = metadata.version(parts[1])
    except metadata.PackageNotFoundError:
        return ""
    for sign, bound in re.findall(r"(>=|<|!=|==)\s*([\w.]+)", parts[2]):
        here, there = _numbers(version), _numbers(bound)
        met = {">=": here >= there, "<": here < there, "!=": here != there, "==": here == there}[sign]
        if not met:
            return f"{parts[1]} is {version}, not {sign}{bound}"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(each) for each in re.findall(r"\d+", version.partition("+")[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()  # 2.0 is 2
    return tuple(numbers)


def _extras() -> Iterator[Finding]:
    """Which extras are there whole, and does anything have a version that is known not to serve?"""
    there, missing, wrong = [], [], []
    names = [
        name
        for name in metadata.metadata("modelkeeper").get_all("Provides-Extra") or ()
        if name not in _NOT_SHOWN
    ]
    for extra in ["", *sorted(names)]:
        problems = [unfit(line) for line in requirements(extra)]
        if "" in problems:  # something of it is not there, so it is not used
            missing.append(extra)
            continue
        there.append(extra)
        wrong += [f"{problem} ({extra or 'modelkeeper'})" for problem in problems if problem]
    words = [", ".join(filter(None, names)) or "none" for names in (there, missing)]
    found = f"{words[0]}; not installed: {words[1]}"
    yield Finding(check="extras", state=OK, found=found)
    if wrong:
        extra = wrong[0].rpartition("(")[2].rstrip(")").replace("modelkeeper", "zoo")
        advice = f"pip chooses what goes together, in a clone: pip install --upgrade '.[{extra}]'"
        yield Finding(check="versions", state=WARN, found="; ".join(dict.fromkeys(wrong)), advice=advice)


def _frameworks() -> Iterator[Finding]:
    """Which frameworks can be imported, and what would they compute on?"""
    versions = {}
    for name in _DEVICES:
        for package in (name, f"{name}-cpu"):  # TensorFlow comes by two names
            try:
                versions[name] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
    if not versions:
        advice = "Install one: pip install 'modelkeeper[torch]', or keras, tensorflow, jax, onnx"
        yield Finding(check="frameworks", state=WARN, found="none is installed", advice=advice)
    for name, version in versions.items():
        yield _framework(name, version)


def _framework(name: str, version: str) -> Finding:
    code = f"{_DEVICES[name]}\nimport json\nprint(json.dumps(found))"
    advice = (
        f"`python -c 'import {name}'` shows it whole. Install it anew, or take it out if you do not need it"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        found = f"{version}, did not answer within {PATIENCE:g} s"
        return Finding(check=name, state=FAIL, found=found, advice=advice)
    if name == "keras" and "ModuleNotFoundError" in done.stderr:
        found = f"{version}, but not the framework that it is set to compute on"
        advice = "Say which is there: KERAS_BACKEND=torch, jax or tensorflow, or ~/.keras/keras.json"
        return Finding(check=name, state=WARN, found=found, advice=advice)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        return Finding(check=name, state=FAIL, found=f"{version}: {last[:MOST_SAID]}", advice=advice)
    devices: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return Finding(check=name, state=OK, found=", ".join(filter(None, [version, enumeration(devices)])))
