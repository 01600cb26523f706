"""The compose file and the Kubernetes file of docs/examples/scale: their services, tried as processes."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from starlette.testclient import TestClient

from tests.support.pg_standby import wait_for
from tests.support.ports import free_port
from tests.support.postgres import PASSWORD, USER, PostgresDatabase
from tests.support.programs import ROOT
from tests.support.shell import Process, Shell

EXAMPLE = ROOT / "docs" / "examples" / "scale"
ANN, BOB = ("ann", "s-e-c-r-e-t"), ("bob", "o-t-h-e-r")
"""An operator, and a user who may only read."""


def services() -> dict[str, Any]:
    """The services of the compose file."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    return found


def pods() -> dict[str, Any]:
    """The pods of the Kubernetes file, by the name of their deployment."""
    documents = yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text())
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"
    }


class Composed:
    """The services of the compose file as processes, on ports of 127.0.0.1."""

    def __init__(self, shell: Shell, postgres: PostgresDatabase, stack: ExitStack) -> None:
        self._shell, self._stack = shell, stack
        self.store = f"postgresql://{USER}@127.0.0.1:{postgres.server.port}/{postgres.name}"
        self.health, self.workers = dict[str, int](), dict[str, Process]()
        self.page, self.https, self.http = free_port(), free_port(), free_port()
        self.certificates = shell.place / "certificates"
        for name in ("agents.py", "page.py"):
            shutil.copy(EXAMPLE / name, shell.place)

    def environment(self, service: Any, **here: object) -> dict[str, str]:
        """The variables of a service, with those that are other here."""
        known = set(service["environment"])
        assert known & {"ORCHESTRATOR_STORE", "PAGE_UPSTREAM"}
        fixed = {key: value for key, value in service["environment"].items() if not value.startswith("${")}
        secret = {"PGPASSWORD": PASSWORD, "PAGE_USERS": ",".join(map(":".join, (ANN, BOB))), "PAGE_OPERATORS": ANN[0]}
        given = {key: value for key, value in secret.items() if key in known}
        if "ORCHESTRATOR_STORE" in known:
            given["ORCHESTRATOR_STORE"] = self.store
        return {**fixed, **given, **{key: str(value) for key, value in here.items()}}

    def start_worker(self, name: str) -> None:
        """Start a worker as its service says, with its health on a port of its own."""
        service = services()[name]
        program, *words = service["command"]
        assert program == "orchestrator"
        self.health[name] = free_port()
        words[words.index("0.0.0.0:9090")] = f"127.0.0.1:{self.health[name]}"
        self.workers[name] = self._stack.enter_context(self._shell.begin(*words, env=self.environment(service)))

    def start_page(self) -> None:
        """Start the page."""
        service = services()["page"]
        program, *words = service["command"]
        env = self.environment(service, UVICORN_HOST="127.0.0.1", UVICORN_PORT=self.page)
        self._stack.enter_context(self._shell.begin(*words, module=program, env=env))

    def start_proxy(self) -> None:
        """Start the proxy, which makes a certificate of its own."""
        service = services()["proxy"]
        program, *words = service["command"]
        found = shutil.which(program)
        if found is None:
            pytest.skip(f"{program} is not there: apt-get install {program}")
        mounted = dict(volume.split(":")[1::-1] for volume in service["volumes"])
        words = [str(EXAMPLE / mounted[word]) if word in mounted else word for word in words]
        env = self.environment(
            service, PAGE_UPSTREAM=f"127.0.0.1:{self.page}", PAGE_BIND="127.0.0.1", PAGE_HTTP_PORT=self.http,
            PAGE_HTTPS_PORT=self.https, XDG_DATA_HOME=self.certificates, XDG_CONFIG_HOME=self.certificates,
            HOME=self.certificates,
        )  # fmt: skip
        with (self._shell.place / "proxy.log").open("w") as log:
            proxy = subprocess.Popen([found, *words], env={"PATH": os.environ["PATH"], **env}, stdout=log, stderr=log)
        self._stack.callback(lambda: (proxy.kill(), proxy.wait()))

    def check_of(self, name: str) -> bool:
        """Run the healthcheck of a service."""
        _, program, *words = services()[name]["healthcheck"]["test"]
        assert program == "python"
        ports = {"9090": str(self.health.get(name)), "7700": str(self.page)}
        for port, here in ports.items():
            words = [word.replace(f":{port}/", f":{here}/") for word in words]
        return self._shell.sh([program, *words]).code == 0

    @contextmanager
    def client(self, *login: str) -> Iterator[httpx2.Client]:
        """A client that reaches the page through the proxy, and checks its certificate."""
        root = self.certificates / "caddy" / "pki" / "authorities" / "local" / "root.crt"
        wait_for(root.exists, 60)
        trusts = ssl.create_default_context(cafile=str(root))
        with httpx2.Client(
            base_url=f"https://localhost:{self.https}", verify=trusts, auth=login or None, trust_env=False, timeout=60
        ) as client:
            yield client


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TestClient]]:
    """Opens the page in this process, with the variables that are given."""
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.setenv("ORCHESTRATOR_STORE", f"sqlite:///{tmp_path}/runs.db")
    monkeypatch.setenv("PAGE_USERS", ",".join(map(":".join, (ANN, BOB))))
    monkeypatch.setenv("PAGE_OPERATORS", f"{ANN[0]}, carl")

    def open_page(**variables: str) -> TestClient:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        sys.modules.pop("page", None)
        return TestClient(import_module("page").app, raise_server_exceptions=False)

    yield open_page
    for name in ("page", "agents"):
        sys.modules.pop(name, None)


def test_orders_of_pages_of_other_sites_are_refused_as_the_api_refuses_them(opened: Callable[..., TestClient]) -> None:
    with opened() as page:
        for path, body in (("/orders", b'{"text": "1"}'), ("/api/runs", b'{"graph": "orders", "input": "1"}')):
            for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
                answer = page.post(path, content=body, auth=ANN, headers={"Content-Type": "text/plain", **headers})
                assert (path, answer.status_code) == (path, 403)
        assert page.get("/api/runs", auth=ANN).json()["runs"] == []
        own = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
        assert page.post("/orders", content=b'{"text": "1"}', auth=ANN, headers=own).status_code == 201


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"nojson", "Invalid JSON"), (b"", "Invalid JSON"), (b"\xff", "Invalid JSON"),
        (b"[]", "object"), (b"null", "object"), (b"{}", "text Field required"),
        (b'{"text": 3}', "text Input should be a valid string"), (b'{"text": " "}', "text String should match"),
        (b'{"text": "1", "run_id": 7}', "run_id"), (b'{"text": "1", "run_id": "a b"}', "a b"),
        (b'{"text": "1", "run_id": ""}', "run id"), (b'{"text": "1", "run_id": "../x"}', "../x"),
        (b'{"text": "\\ud800"}', "Invalid JSON"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_order_is_answered_with_what_is_wrong(
    opened: Callable[..., TestClient], body: bytes, said: str
) -> None:
    with opened() as page:
        answer = page.post("/orders", content=body, auth=ANN)
        assert (answer.status_code, said in answer.text) == (422, True), answer.text
        assert page.get("/api/runs", auth=ANN).json()["runs"] == []


def test_an_order_can_be_repeated_and_its_id_means_no_other(opened: Callable[..., TestClient]) -> None:
    with opened() as page:
        for _ in range(2):
            assert page.post("/orders", json={"text": "1", "run_id": "a"}, auth=ANN).json() == {"run_id": "a"}
        other = page.post("/orders", json={"text": "2", "run_id": "a"}, auth=ANN)
        assert (other.status_code, "another run id" in other.text) == (409, True)
        assert page.post("/orders", content=b"nojson", auth=BOB).status_code == 403
        assert page.post("/orders", content=b"nojson").status_code == 401


@pytest.mark.parametrize("restored", ["2026-12-01T08:00Z", "2026-12-01T08:00", "2026-12-01", "2h", ""])
def test_the_page_reads_the_time_of_a_restore_as_workers_do(opened: Callable[..., TestClient], restored: str) -> None:
    with opened(ORCHESTRATOR_RESTORED_AT=restored) as page:
        assert page.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("variable", "value"), [("ORCHESTRATOR_RESTORED_AT", "soon"), ("PAGE_USERS", ""), ("PAGE_USERS", "ann")]
)
def test_the_page_says_which_variable_it_cannot_read(
    opened: Callable[..., TestClient], variable: str, value: str
) -> None:
    with pytest.raises(ValueError, match=variable.removeprefix("ORCHESTRATOR_").lower() + "|PAGE_USERS=ann:secret"):
        opened(**{variable: value})


@pytest.mark.full
def test_the_workers_of_the_compose_file_share_the_runs(postgres: PostgresDatabase, shell: Shell) -> None:
    with ExitStack() as stack:
        here = Composed(shell, postgres, stack)
        for name in ("worker-1", "worker-2"):
            here.start_worker(name)
        at = ("--store", postgres.url)
        for number in range(9):
            put = shell("enqueue", "agents:orders", f"{number} kettles", "--run-id", f"r{number}", *at)
            assert put.code == 0, put.err
        wait_for(lambda: len(shell("runs", "--status", "completed", "--json", *at).json) == 9, 60)
        (row,) = shell("runs", "--search", "7 kettles", "--json", *at).json
        assert row["output"] == "shipped 7"
        assert [one["state"] for one in shell("workers", "--json", *at).json["workers"]] == ["alive"] * 2
        for one in here.workers.values():
            one.signal(signal.SIGTERM)
        assert [one.end().code for one in here.workers.values()] == [0, 0]


@pytest.mark.peer
def test_runs_go_through_the_page_behind_tls_and_login_and_go_on_when_a_worker_is_killed(
    postgres: PostgresDatabase, shell: Shell
) -> None:
    with ExitStack() as stack:
        here = Composed(shell, postgres, stack)
        for name in ("worker-1", "worker-2"):
            here.start_worker(name)
        here.start_page()
        here.start_proxy()
        ann, bob = (stack.enter_context(here.client(*login)) for login in (ANN, BOB))
        stranger, liar = (stack.enter_context(here.client(*login)) for login in ((), ("ann", "guessed")))
        wait_for(lambda: _answers(ann), 60)
        for name in ("worker-1", "worker-2", "page"):
            wait_for(lambda name=name: here.check_of(name), 60)

        # who may do what
        assert stranger.get("/api/runs").status_code == 401
        assert liar.get("/api/runs").status_code == 401
        assert bob.get("/api/runs").json()["runs"] == []
        assert bob.post("/orders", json={"text": "3 kettles"}).status_code == 403
        plain = httpx2.get(f"http://localhost:{here.http}/", trust_env=False)
        assert (plain.status_code, plain.headers["location"]) == (308, "https://localhost/")

        # a worker is killed while it drives runs
        orders = [f"order-{number}" for number in range(12)]
        for run_id in orders:
            assert ann.post("/orders", json={"text": "250 kettles", "run_id": run_id}).status_code == 201
        holding = _holding(ann)
        name = next(name for name, port in here.health.items() if _pid_on(port) == holding["pid"])
        here.workers[name].signal(signal.SIGKILL)
        here.workers[name].wait()
        # it may have claimed a run, and been killed before it drove it
        driven = {
            run_id: types.count("resumed")
            for run_id in holding["runs"]
            if "ended" not in (types := _types(ann, run_id))
        }
        assert driven
        wait_for(lambda: len(ann.get("/api/runs", params={"status": "completed"}).json()["runs"]) == 12, 120)
        for run_id in orders:
            assert ann.get(f"/api/runs/{run_id}").json()["output"] == "shipped 250"
        assert {run_id for (run_id,) in postgres.execute("SELECT run_id FROM runs")} == {*orders}
        assert "order-0" in bob.get("/", follow_redirects=True).text
        with bob.stream("GET", "/api/runs/order-0/events") as events:
            assert "ended" in "".join(events.iter_text())
        for run_id, before in driven.items():
            assert _types(ann, run_id).count("resumed") == before + 1, f"{run_id} did not go on in the other worker"

        # an operator orders and answers on the page, which journals who it was; pages of other sites do neither
        foreign, own = {"Origin": "https://elsewhere.example"}, {"Origin": f"https://localhost:{here.https}"}
        assert ann.post("/orders", json={"text": "500 kettles", "run_id": "large"}, headers=foreign).status_code == 403
        assert ann.post("/orders", json={"text": "500 kettles", "run_id": "large"}, headers=own).status_code == 201
        wait_for(lambda: ann.get("/api/runs/large").json()["status"] == "paused", 60)
        (asked,) = ann.get("/api/questions").json()["questions"]
        question = asked["question"]
        answer = {"approve": True, "question": question["id"], "digest": question["digest"]}
        assert bob.post("/api/runs/large/answer", json=answer, headers=own).status_code == 403
        assert ann.post("/api/runs/large/answer", json=answer, headers=foreign).status_code == 403
        assert ann.post("/api/runs/large/answer", json=answer, headers=own).status_code == 200
        wait_for(lambda: ann.get("/api/runs/large").json()["status"] == "completed", 60)
        (said,) = [one for one in ann.get("/api/runs/large/records").json()["records"] if one["type"] == "answered"]
        assert said["by"] == "ann"


def _answers(client: httpx2.Client) -> bool:
    with suppress(httpx2.HTTPError):
        return client.get("/readyz").status_code == 200
    return False


def _types(client: httpx2.Client, run_id: str) -> list[str]:
    """Return the types of a run's records."""
    return [one["type"] for one in client.get(f"/api/runs/{run_id}/records").json()["records"]]


def _holding(client: httpx2.Client) -> Any:
    """Wait until a worker holds runs, and return its row."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = [one for one in client.get("/api/workers").json()["workers"] if one["runs"]]
        return bool(found)

    wait_for(look, 60)
    return found[0]


def _pid_on(port: int) -> int:
    """The process that listens on a port of this machine."""
    import psutil

    return next(one.pid for one in psutil.net_connections("tcp4") if one.laddr[1] == port and one.status == "LISTEN")


def test_the_image_of_the_compose_file_is_made_of_files_that_are_there() -> None:
    lines = (EXAMPLE / "Dockerfile").read_text().splitlines()
    copied = [Path(path) for line in lines if line.startswith("COPY") for path in line.split()[1:-1]]
    assert len(copied) == 3
    assert all((ROOT / path).exists() for path in copied)
    compose = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
    build = compose["x-app"]["build"]
    assert (EXAMPLE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).exists()


def test_the_kubernetes_file_starts_the_same_commands() -> None:
    found = pods()
    for name, service in (("agents-worker", "worker-1"), ("agents-page", "page")):
        (container,) = found[name]["containers"]
        assert container["command"] == services()[service]["command"]
        known = {one["name"] for one in container["env"]}
        assert known == set(services()[service]["environment"])


def test_a_worker_has_more_time_to_stop_than_its_steps() -> None:
    pod = pods()["agents-worker"]
    command = pod["containers"][0]["command"]
    grace = int(command[command.index("--grace") + 1])
    assert grace + 5 <= pod["terminationGracePeriodSeconds"] <= 30, "leases last 30 s: to wait longer gains nothing"
    assert services()["worker-1"]["stop_grace_period"] == f"{pod['terminationGracePeriodSeconds']}s"


def test_no_secret_is_in_the_files() -> None:
    for pod in pods().values():
        for one in pod["containers"][0]["env"]:
            if any(word in one["name"] for word in ("PASSWORD", "USERS", "OPERATORS")):
                assert one["valueFrom"]["secretKeyRef"]
    for service in services().values():
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in ("PASSWORD", "USERS")):
                assert value.startswith("${"), name


@pytest.mark.peer
def test_a_validator_accepts_the_kubernetes_file() -> None:
    program = os.environ.get("KUBERNETES_VALIDATE")
    if program is None:
        pytest.skip("KUBERNETES_VALIDATE does not name the validator")
    for version in ("1.29", "1.37"):
        done = subprocess.run(
            [program, "--strict", "-k", version, EXAMPLE / "kubernetes.yaml"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
