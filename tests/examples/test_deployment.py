"""The files of examples/deploy: units, manifests, images and playbook are valid; what they name exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml

from artimon.cli.program import app
from tests.programs import require

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
APPLICATION = DEPLOY / "kubernetes" / "application" / "application.yaml"
IMAGES = sorted((DEPLOY / "images").glob("*.Dockerfile"))
ANSIBLE = DEPLOY / "ansible"
ORDER = ["apis", "alerts", "shards", "spark", "compactors", "collectors", "agents"]
GUIDE = (ROOT / "docs" / "deploy.md").read_text()
PROGRAM = "/opt/artimon/bin/"
ROLES = frozenset({"agent", "collector", "shard", "spark", "compactor", "api", "alerts"})
KUBERNETES = ("1.28", "1.37")


def unit_command(unit: Path) -> list[str]:
    """Return the words of a unit's ExecStart."""
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart="))


def documents(manifest: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(manifest.read_text()) if document]


def containers(manifest: Path) -> Iterator[dict[str, Any]]:
    """Yield the containers of the pods of a manifest."""
    for document in documents(manifest):
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        yield from pod.get("containers", ())


def commands() -> list[list[str]]:
    """Return every command line of Artimon in units and manifests, from `artimon`'s first argument on."""
    units = [words[1:] for words in map(unit_command, UNITS) if words[0] == f"{PROGRAM}artimon"]
    pods = [[*one["command"][1:], *one.get("args", ())] for m in MANIFESTS for one in containers(m)]
    return [*units, *pods]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    for name in ("artimon", "spark-submit"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    name = unit.name.replace("@.", "@0.")
    (tmp_path / name).write_text(unit.read_text().replace(PROGRAM, f"{tmp_path}/"))
    verify = [str(require("systemd-analyze").path), "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)]
    done = subprocess.run(verify, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_command_line_has_options_that_exist() -> None:
    known = typer.main.get_command(app)
    for role, *words in commands():
        command = known.commands[role]  # type: ignore[attr-defined]
        options = {option for parameter in command.params for option in parameter.opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= options, f"artimon {role} {' '.join(words)}"


def test_every_role_has_a_unit_and_a_manifest() -> None:
    assert {unit_command(unit)[1] for unit in UNITS} >= ROLES
    assert {one["command"][1] for manifest in MANIFESTS for one in containers(manifest)} >= ROLES


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("manifest", [*MANIFESTS, APPLICATION], ids=lambda manifest: manifest.name)
def test_kubernetes_accepts_the_manifest(manifest: Path, version: str) -> None:
    for document in documents(manifest):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("manifest", [*MANIFESTS, APPLICATION], ids=lambda manifest: manifest.name)
def test_what_a_pod_mounts_is_a_volume_of_it(manifest: Path) -> None:
    for document in documents(manifest):
        spec = document.get("spec", {})
        pod = spec.get("template", {}).get("spec", {})
        volumes = {v["name"] for v in pod.get("volumes", ())}
        volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        for one in (*pod.get("containers", ()), *pod.get("initContainers", ())):
            assert {mount["name"] for mount in one.get("volumeMounts", ())} <= volumes


Objects = dict[tuple[str, str], dict[str, str]]


def objects() -> Objects:
    """Return the contents by key of every ConfigMap and Secret that a manifest or a command of docs/deploy.md makes, by
    kind and name; a command tells keys only."""
    made: Objects = {}
    for document in (one for manifest in MANIFESTS for one in documents(manifest)):
        if document["kind"] in ("ConfigMap", "Secret"):
            made[document["kind"], document["metadata"]["name"]] = document["data"]
    for kind, name, options in re.findall(r"(?m)^kubectl .* create (configmap|secret generic) (\S+)(.*)$", GUIDE):
        files = (word.partition("=")[2] for word in options.split())
        made["ConfigMap" if kind == "configmap" else "Secret", name] = {
            Path(file.partition("=")[0]).name: "" for file in files
        }
    return made


def spark_properties() -> dict[str, str]:
    lines = (DEPLOY / "kubernetes" / "spark.properties").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def source_of(volume: dict[str, Any]) -> tuple[str, str] | None:
    """Return kind and name of the object that a volume shows."""
    if "secret" in volume:
        return "Secret", volume["secret"]["secretName"]
    return ("ConfigMap", volume["configMap"]["name"]) if "configMap" in volume else None


@dataclass(frozen=True)
class Process:
    """Process of Artimon in a pod, with its environment; `text` names the files that it reads."""

    role: str
    pod: dict[str, Any]
    container: dict[str, Any]
    environment: dict[str, str]
    text: str

    @property
    def host_field(self) -> str:
        """Field of the pod that ARTIMON_HOST is taken from."""
        (found,) = [one for one in self.container["env"] if one["name"] == "ARTIMON_HOST"]
        return str(found["valueFrom"]["fieldRef"]["fieldPath"])

    def volume_of(self, path: str) -> tuple[dict[str, Any], str]:
        """Return the volume that holds a file, and the path in it."""
        for mount in self.container["volumeMounts"]:
            inside = path.removeprefix(mount["mountPath"])
            if inside != path and (not inside or inside.startswith("/")):
                (volume,) = [one for one in self.pod["volumes"] if one["name"] == mount["name"]]
                return volume, inside.removeprefix("/")
        raise AssertionError(f"{self.role}: {path} is not mounted")


def processes(manifests: list[Path] = MANIFESTS) -> Iterator[Process]:
    """Yield every process of the manifests, and that of Spark's executors."""
    made, properties = objects(), spark_properties()
    for document in (one for manifest in manifests for one in documents(manifest)):
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        for one in pod.get("containers", ()):
            role = one["command"][1] if "command" in one else "application"
            environment: dict[str, str] = {}
            for source in one.get("envFrom", ()):
                environment |= made["ConfigMap", source["configMapRef"]["name"]]
            environment |= {given["name"]: given["value"] for given in one["env"] if "value" in given}
            words = [*one.get("args", ()), *environment.values(), *(properties.values() if role == "spark" else ())]
            yield Process(role, pod, one, environment, "\n".join(words))
    pod = executor_pod()["spec"]
    prefix = "spark.executorEnv."
    environment = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    yield Process("executor", pod, pod["containers"][0], environment, "\n".join(environment.values()))


def executor_pod() -> Any:
    return yaml.safe_load(objects()["ConfigMap", "artimon-executor"]["pod.yaml"])


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_accepts_the_pod_of_executors(version: str) -> None:
    kubernetes_validate.validate(executor_pod(), version, strict=True)


def test_every_secret_and_config_map_of_a_pod_is_made() -> None:
    made = objects()
    assert spark_properties()["spark.kubernetes.hadoop.configMapName"] in {name for _, name in made}
    for process in processes():
        for source in filter(None, map(source_of, process.pod["volumes"])):
            assert source in made, f"{process.role}: nothing makes {source}"


def test_every_process_has_the_files_that_its_settings_name() -> None:
    """The tokens among them, which each role needs: nobody answers one without. Secrets are for the process alone."""
    made, roles = objects(), set()
    for process in processes():
        roles.add(process.role)
        assert process.environment["ARTIMON_SECURITY"] == "require"
        assert process.environment["ARTIMON_TOKENS"], process.role
        for path in re.findall(r"/etc/artimon/[^\s,]+", process.text):
            volume, file = process.volume_of(path)
            source = source_of(volume)
            assert source is not None
            assert not file or file in made[source], f"{process.role}: {source} has no {file}"
            shown = {item["path"] for item in volume.get("secret", {}).get("items", ())}
            assert not shown or file in shown
            if source[0] == "Secret":
                user = process.pod["securityContext"]
                assert (volume["secret"]["defaultMode"], user["fsGroup"]) == (0o440, user["runAsGroup"])
    assert roles == {*ROLES, "executor"}


def test_pods_register_below_the_node_whose_agent_polls_them() -> None:
    (agent,) = [one for one in processes() if one.role == "agent"]
    (application,) = [one for one in processes([APPLICATION]) if one.role == "application"]
    assert agent.host_field == application.host_field == "spec.nodeName"
    folder = "/var/run/artimon"
    assert f"--dropin={folder}" in agent.container["args"]
    told = [one.volume_of(folder)[0]["hostPath"]["path"] for one in (agent, application)]
    assert told == [folder, folder]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_copies_what_exists_and_runs_without_root(image: Path) -> None:
    text = image.read_text().replace("\\\n", " ")
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", text):
        *sources, _target = line.split()
        for source in sources:
            assert list(ROOT.glob(source.rstrip("/"))), f"{image.name}: COPY {source}"
    for command in re.findall(r"[^&]*--require-hashes[^&]*", text):
        assert "--no-deps" in command, f"{image.name}: a lock is complete only as scripts/install.py installs it"
    stages = re.findall(r"(?m)^FROM .+ AS (\w+)$", text)
    assert set(re.findall(r"--from=(\w+)", text)) <= set(stages)
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"(?m)^USER [1-9]\d*$", last), f"{image.name} runs as root"
    assert "build" in stages, f"{image.name} has one stage"


def test_the_image_of_the_agent_has_what_its_wheel_is_made_of() -> None:
    project = tomllib.loads((ROOT / "scripts" / "agent_wheel" / "pyproject.toml").read_text())
    files = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    copied = re.findall(r"(?m)^COPY (\S+) \1$", (DEPLOY / "images" / "agent.Dockerfile").read_text())
    assert {file.split("/")[2] for file in files} <= set(copied)


def plays() -> list[dict[str, Any]]:
    return list(yaml.safe_load((ANSIBLE / "site.yaml").read_text()))


def test_the_playbook_replaces_packages_only_where_it_restarts_a_role() -> None:
    """Each group of hosts has one play, which takes few hosts at a time, in the order of docs/upgrade.md."""
    first, *others = plays()
    used = {module for task in first["tasks"] for module in task}
    assert used.isdisjoint({"ansible.builtin.pip", "ansible.builtin.copy", "ansible.builtin.template"})
    assert [play["hosts"] for play in others] == ORDER
    assert [play["serial"] for play in others] == [1] * (len(ORDER) - 1) + ["10%"]
    assert all(set(play) <= {"name", "hosts", "become", "serial", "vars", "pre_tasks", "tasks"} for play in others)
    groups = yaml.safe_load((ANSIBLE / "inventory.yaml").read_text())["all"]["children"]
    assert groups.keys() == {play["hosts"] for play in others}
    for play in others:
        assert play["tasks"] == [{"ansible.builtin.import_tasks": "role.yaml"}]
        (unit,) = [one for one in UNITS if one.name == play["vars"]["file"]]
        assert unit_command(unit)[1] == play["vars"]["process"]
        assert play["vars"]["package"] == ("artimon_agent" if play["hosts"] == "agents" else "artimon")


def test_a_role_is_installed_before_it_restarts_and_anew_whatever_its_version() -> None:
    tasks = yaml.safe_load((ANSIBLE / "role.yaml").read_text())
    modules = [next(key for key in task if key.startswith("ansible.builtin.")) for task in tasks]
    own, required = (task["ansible.builtin.pip"] for task in tasks if "ansible.builtin.pip" in task)
    assert own["extra_args"] == "--no-compile --no-deps --force-reinstall"
    assert required["extra_args"] == "--no-compile"
    assert own["virtualenv"] == required["virtualenv"] == "/opt/artimon/{{ process }}"
    wheels, restart = modules.index("ansible.builtin.copy"), modules.index("ansible.builtin.systemd_service")
    assert wheels < modules.index("ansible.builtin.pip") < restart == len(tasks) - 2
    due, done = (task for task in tasks if "{{ process }}.installed" in str(task))
    assert due["ansible.builtin.copy"] == done["ansible.builtin.copy"]
    assert (due.get("check_mode"), done.get("check_mode"), done) == (True, None, tasks[-1])


TEMPLATE = (ANSIBLE / "templates" / "artimon.env.j2").read_text()


def needed_files(text: str) -> set[str]:
    """Return the files of /etc/artimon that a text names; `=-` before one means that it may be missing."""
    return {path.removeprefix("/etc/artimon/") for path in re.findall(r"(?<!=-)/etc/artimon/[\w./-]*[\w-]", text)}


def variables(text: str) -> set[str]:
    """Return the names that a file of environment variables sets."""
    return set(re.findall(r"(?m)^([A-Z_]+)=", text))


def role_files() -> set[str]:
    """Return the files that role.yaml puts into /etc/artimon of every host."""
    tasks = {task["name"]: task for task in yaml.safe_load((ANSIBLE / "role.yaml").read_text())}
    shared = re.findall(r"'([^']+)'", tasks["Files of all hosts, and of the role"]["loop"])
    certificate = tasks["Certificate of the host"]
    assert certificate["ansible.builtin.copy"]["dest"] == "/etc/artimon/tls/{{ item }}"
    assert tasks["Addresses"]["ansible.builtin.template"]["dest"] == "/etc/artimon/artimon.env"
    return {*shared, *(f"tls/{file}" for file in certificate["loop"]), "artimon.env"}


def test_the_playbook_supplies_every_file_and_variable_of_a_unit() -> None:
    for play in plays()[1:]:
        unit = (DEPLOY / "systemd" / play["vars"]["file"]).read_text()
        supplied = role_files() | {file.rstrip("/") for file in play["vars"].get("files", ())}
        assert needed_files(unit + TEMPLATE) <= supplied, play["name"]
        own = set(re.findall(r"(?m)^Environment=([A-Z_]+)=", unit))
        assert set(re.findall(r"\$\{([A-Z_]+)\}", unit)) <= variables(TEMPLATE) | own, play["name"]
        for file in play["vars"].get("files", ()):
            assert f"`{file}`" in GUIDE


def test_units_without_a_play_name_files_of_the_document() -> None:
    example = (DEPLOY / "systemd" / "artimon.env").read_text()
    assert variables(TEMPLATE) - {"SHARD_MEMBERS"} == variables(example)
    assert needed_files(TEMPLATE) == needed_files(example) - {"artimon.env"}
    known = (ROOT / "docs" / "environment.md").read_text()
    assert not [name for name in variables(example) if name.startswith("ARTIMON_") and f"`{name}`" not in known]
    played = {play["vars"]["file"] for play in plays()[1:]}
    for unit in (unit for unit in UNITS if unit.name not in played):
        text = unit.read_text()
        for file in needed_files(text) - role_files():
            assert f"{file}`" in GUIDE, f"{unit.name}: docs/deploy.md does not say what makes {file}"
        assert set(re.findall(r"\$\{([A-Z_]+)\}", text)) <= variables(example) | {"SHARD_MEMBERS"}, unit.name
    assert "`handover` has a unit and no manifest" in GUIDE


def test_the_play_of_spark_brings_java_and_the_jars_of_its_properties() -> None:
    (play,) = [play for play in plays() if play["hosts"] == "spark"]
    tasks = {task["name"]: task for task in play["pre_tasks"]}
    assert tasks["Java"]["ansible.builtin.apt"]["name"] == "default-jdk-headless"
    folder = tasks["Jars"]["ansible.builtin.copy"]["dest"]
    jars = re.search(r"(?m)^spark.jars\s+(\S+)$", (DEPLOY / "standalone.properties").read_text())
    assert jars is not None
    assert all(jar.startswith(folder) for jar in jars[1].split(","))


def test_nothing_is_for_one_architecture_of_processors() -> None:
    files = [file for file in DEPLOY.rglob("*") if file.is_file()]
    assert not [file.name for file in files if re.search(r"amd64|x86_64|aarch64|arm64", file.read_text())]


INSTRUCTION = re.compile(
    "ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|ONBUILD|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR"
)


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_has_instructions_that_exist_and_takes_from_stages_before(image: Path) -> None:
    lines = [line for line in image.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n", " ", "\n".join(lines))
    stages: list[str] = []
    arguments: set[str] = set()
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.partition(" ")
        assert INSTRUCTION.fullmatch(word), line
        assert rest.strip(), line
        if word == "ARG":
            arguments.add(rest.partition("=")[0])
        elif word == "FROM":
            assert set(re.findall(r"\$\{(\w+)\}", rest)) <= arguments, line
            stages += re.findall(r" AS (\w+)$", rest)
        elif word == "COPY" and (source := re.search(r"--from=(\w+)", rest)):
            assert source[1] in stages, line
        elif word == "RUN":
            done = subprocess.run(["sh", "-n", "-c", rest], capture_output=True, text=True, check=False)
            assert not done.stderr, line


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_has_the_compiled_functions_of_receivers(image: Path) -> None:
    """What `build_library` is called for, but where the package is not in the image."""
    text = image.read_text()
    for module in ("sources.receive.known_series", "sources.receive.known_points"):
        assert module in text
    assert ("artimon.compute.kernels" in text) == image.name.startswith("platform")
