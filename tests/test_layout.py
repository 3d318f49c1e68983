"""Tests lie where the modules they test lie: tests/graph/test_wire.py tests src/modelkeeper/graph/wire.py.

What tests no single module is a suite, and named below with the question that it answers.
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "modelkeeper"
TESTS = ROOT / "tests"

SUITES = {
    "across/test_calibration.py": "does a parent of one framework calibrate a child of another?",
    "across/test_keras_and_torch.py": "is a network in Keras the graph that it is in PyTorch?",
    "across/test_onnx_exports.py": "do torch models and their own ONNX exports lend to each other?",
    "across/test_torch_and_keras.py": "do networks in PyTorch and in Keras lend to each other exactly?",
    "across_files/test_lent.py": "do PyTorch models in a zoo lend to Keras where there is no PyTorch?",
    "coordinator/test_contract.py": "does a coordinator behind HTTP answer as one in process does?",
    "frontends/keras/test_conformance.py": "does the Keras front end keep the promises of all front ends?",
    "frontends/onnx/test_conformance.py": "does the ONNX front end keep the promises of all front ends?",
    "frontends/keras/test_promises.py": "is anything called exact of Keras models that is not?",
    "frontends/onnx/test_promises.py": "is anything called exact of ONNX models that is not?",
    "frontends/torch/test_promises.py": "is anything called exact of PyTorch models that is not?",
    "frontends/torch/test_activations.py": "is every activation of torch.nn understood?",
    "frontends/torch/test_conformance.py": "does the PyTorch front end keep the promises of all front ends?",
    "frontends/torch/test_coverage.py": "are real architectures described, and is it true of them?",
    "graph/test_hostile.py": "what do bytes from strangers do to graphs and to all that reads them?",
    "integrations/huggingface/test_models.py": "do models of transformers train warm, whatever their kind?",
    "integrations/huggingface/test_peft.py": "do bases keep their weights, are adapters refused?",
    "integrations/huggingface/test_real.py": "do processes, examples and the page run as they should?",
    "integrations/keras/test_real.py": "does a real zoo lend to fit, KerasTuner and AutoKeras?",
    "integrations/ray/test_real.py": "do searches of Ray start warm, and leave what they had?",
    "matching/test_real.py": "do the laws of alignment and search hold for networks of libraries?",
    "policy/test_values.py": "are values of policies frozen?",
    "policy/selection/test_registry.py": "can a package add a policy, and what if it is broken?",
    "server/test_fairness.py": "can one colleague crowd out others?",
    "server/test_backends.py": "does a service run over PostgreSQL and an object store, in real processes?",
    "server/test_container.py": "do the steps of the container give a service, and does a builder take them?",
    "server/test_deployment.py": "do the files under deploy/ work as they are?",
    "server/test_hostile.py": "what may strangers send to a service?",
    "server/test_identities.py": "does a name that is used again inherit anything, and whose is a model?",
    "server/test_manifests.py": "are the compose file and the manifests valid, and is there what they name?",
    "server/test_partners.py": "what do partners of other organisations see of a zoo?",
    "server/test_rights.py": "who may see and change what, from the token to the catalog?",
    "server/test_soak.py": "is anything lost when a service is killed while it is used?",
    "server/test_topology.py": "do replicas behind nginx lose anything while all parts fail in turn?",
    "server/ui/test_charts.py": "are lines drawn that everybody can read, in both lights?",
    "server/ui/test_browser.py": "do the pages work in a real browser, whatever is in the zoo?",
    "test_escapes.py": "does text of others steer a terminal or a log, in any command or error?",
    "test_architecture.py": "who imports whom, how long are files and functions, is the map right?",
    "test_dependencies.py": "may we stand on what is installed, and is it what was looked at?",
    "test_docs.py": "does what the documents show run?",
    "test_evaluation.py": "is the evaluation under benchmarks/training fair, and can it be resumed?",
    "test_exports.py": "is what a package exports there?",
    "test_extending.py": "can each part that CONTRIBUTING names be added as it says?",
    "test_fuzz.py": "what do hostile programs, graphs, files, requests and replies do to who takes them?",
    "test_layout.py": "do tests lie where what they test lies?",
    "test_notebooks.py": "do the notebooks of the documentation run?",
    "test_packaging.py": "do wheels hold what they should, and are they built as the files for CI say?",
    "test_release.py": "is what a release says of itself true: version, changelog, what is public?",
    "test_scale_page.py": "does docs/scale.md say what was measured?",
    "test_site.py": "is all that the code offers in the reference pages, does every link lead somewhere?",
    "test_simulate.py": "does the simulated year decide as the policies do, and keep their laws?",
    "transform/test_endless.py": "does planning end in time, whatever is sent?",
    "transform/test_values.py": "are values of plans frozen?",
    "transform/test_law.py": "does a larger child compute what its parent computes, in every family?",
    "warmstart/test_hostile_parents.py": "what can the program of somebody's model do to a training?",
    "zoo/test_durability.py": "is what was acknowledged there after a crash?",
    "zoo/test_keeping.py": "which models stay when a zoo is full, from the policy to the disk?",
    "zoo/replicas/test_replicas.py": "do several coordinators over one database and one store lose nothing?",
    "zoo/test_processes.py": "do many processes share a home without losing anything?",
}


def module_of(test: Path) -> Path:
    """The module, without its suffix, that a test file is named after."""
    inside = test.relative_to(TESTS)
    return PACKAGE / inside.parent / inside.stem.removeprefix("test_")


def exists(module: Path) -> bool:
    """Is there such a module or package? A name may leave out a leading underscore."""
    private = module.with_name(f"_{module.name}")
    return any(
        each.with_suffix(suffix).is_file() or (each / "__init__.py").is_file()
        for each in (module, private)
        for suffix in (".py", ".pyi")
    )


def test_every_test_file_has_a_namesake_or_is_a_suite() -> None:
    tests = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("test_*.py"))}
    lost = [name for name, path in tests.items() if name not in SUITES and not exists(module_of(path))]
    assert lost == [], "name them after the module that they test, or list them in SUITES with their question"
    assert sorted(SUITES.keys() - tests.keys()) == [], "suites that are not there"
    assert [name for name in SUITES if exists(module_of(TESTS / name))] == [], "these have namesakes"


def test_tests_begin_with_test_and_the_rest_are_helpers() -> None:
    others = [
        path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        if not path.name.startswith("test_") and path.name not in ("__init__.py", "conftest.py")
    ]
    assert [name for name in others if not name.startswith("helpers/")] == []
