# SPDX-License-Identifier: MPL-2.0
"""The Helm chart, rendered by Helm itself for many values: tests/kubernetes/chart.sh runs this.

What is rendered must be right for each version of Kubernetes, its configuration for gst-trt, and each value must have an effect.
"""

import base64
import contextlib
import copy
import json
import os
import pathlib
import subprocess
import tempfile
import tomllib
import unittest
import warnings

import helm_python as helm
import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHART = ROOT / "packaging/chart"
FILES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((HERE / "values").glob("*.yaml"))}
PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
# What the page shows: values to begin with, and more of them.
SHOWN = [yaml.safe_load(block.split("```")[0]) for block in PAGE.split("```yaml\n")[1:]]
CASES = {"default": {}, "page": SHOWN[0], "page with a GPU": {**SHOWN[0], **SHOWN[1]}, **FILES}
# The oldest that the chart takes, and the newest with a schema.
VERSIONS = ("1.28.0", "1.30.0", "1.32.0", "1.34.0", "1.37.0")


@contextlib.contextmanager
def quiet():
    """Helm's library logs to stderr which link it follows, each time."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


with quiet():
    LOADED = helm.Chart.load(CHART)


def texts(values):
    return LOADED.render(values, name="cameras", namespace="video")


def objects(values):
    """All objects, by kind and name."""
    found = {}
    for path, text in texts(values).items():
        if not path.endswith("NOTES.txt"):
            for each in yaml.safe_load_all(text):
                if each:
                    key = each["kind"], each["metadata"]["name"]
                    assert key not in found, f"{key} is there twice"
                    found[key] = each
    return found


def one(values, kind):
    [found] = [each for (of, _), each in objects(values).items() if of == kind]
    return found


def template(values):
    return one(values, "StatefulSet")["spec"]["template"]


def service_container(values):
    [found] = [each for each in template(values)["spec"]["containers"] if each["name"] == "gst-trt"]
    return found


def configuration(values):
    files = [each for each in objects(values).values() if "config.toml" in {**each.get("data", {}), **each.get("stringData", {})}]
    [found] = files
    return found.get("data") or found["stringData"]


def set_at(values, path, value):
    """A copy in which the value at "a.b" is another one."""
    changed = copy.deepcopy(values)
    *folders, last = path.split(".")
    place = changed
    for each in folders:
        place = place.setdefault(each, {})
    place[last] = value
    return changed


def leaves(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict) and value and f"{prefix}{key}" not in WHOLE:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


# Values that Kubernetes knows, which the chart passes on as they are.
WHOLE = {"probes.startup", "probes.liveness", "probes.readiness", "podSecurityContext", "securityContext", "updateStrategy"}

# For each value of the chart another one, and what must be set for it to count.
SOURCE = {"name": "a", "address": "rtsp://h/a"}
VOLUME = {"emptyDir": {}}
OTHERS = {
    "replicas": 2, "sources": [SOURCE], "config": "[track]", "files": {"zones.json": "{}"}, "configKind": "Secret",
    "envFromSecrets": ["a"], "credentials.secret": "a",
    "http.port": 1234, "http.token.secret": "a", "http.token.key": "a",
    "rtsp.enabled": (True, {"rtsp.password.secret": "a"}),
    **{f"rtsp.{key}": (value, {"rtsp.enabled": True, "rtsp.password.secret": "b"})
       for key, value in {"port": 1234, "user": "a", "sei": True, "password.secret": "a", "password.key": "a"}.items()},
    "webrtc.enabled": True,
    **{f"webrtc.{key}": (value, {"webrtc.enabled": True}) for key, value in {"port": 1234, "addresses": ["203.0.113.7"], "hostPort": True}.items()},
    "service.type": "NodePort", "service.annotations": {"a": "b"}, "service.loadBalancerClass": "a/b",
    "service.loadBalancerSourceRanges": ["10.0.0.0/8"], "service.externalTrafficPolicy": "Local", "service.perReplica": True,
    "image.repository": "a", "image.tag": "a", "image.digest": "sha256:" + 64 * "0", "image.pullPolicy": "Always", "imagePullSecrets": [{"name": "a"}],
    "gpu.enabled": True,
    **{f"gpu.{key}": (value, {"gpu.enabled": True}) for key, value in {"resource": "nvidia.com/mig-1g.10gb", "count": 2, "runtimeClassName": "a"}.items()},
    "models.volume": VOLUME, "models.mountPath": ("/a", {"models.volume": VOLUME}),
    "tensorrt.volume": VOLUME, "tensorrt.mountPath": ("/a", {"tensorrt.volume": VOLUME}),
    **{f"{volume}.{key}": value for volume in ("cache", "data") for key, value in {
        "persistent": True, "size": ("1Gi", {f"{volume}.persistent": True}), "storageClassName": ("a", {f"{volume}.persistent": True}),
        "accessModes": (["ReadWriteMany"], {f"{volume}.persistent": True}), "sizeLimit": "1Gi"}.items()},
    "cache.volume": {"persistentVolumeClaim": {"claimName": "engines"}},
    "persistentVolumeClaimRetentionPolicy.whenScaled": "Delete", "persistentVolumeClaimRetentionPolicy.whenDeleted": "Delete",
    "extraVolumes": [{"name": "a", **VOLUME}], "extraVolumeMounts": [{"name": "a", "mountPath": "/a"}],
    "resources": {"requests": {"cpu": "1"}}, "extraEnv": [{"name": "A", "value": "b"}], "timezone": "Europe/Berlin", "extraArgs": ["--log-format=json"],
    **{f"probes.{probe}": {"periodSeconds": 33} for probe in ("startup", "liveness", "readiness")},
    "terminationGracePeriodSeconds": 33, "updateStrategy": {"type": "OnDelete"}, "minReadySeconds": 3, "revisionHistoryLimit": 3,
    "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "unreachableSeconds": "", "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}], "priorityClassName": "a",
    "schedulerName": "a", "hostNetwork": True, "dnsPolicy": "Default", "dnsConfig": {"nameservers": ["10.0.0.1"]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "labels": {"a": "b"}, "annotations": {"a": "b"}, "podLabels": {"a": "b"}, "podAnnotations": {"a": "b"},
    "initContainers": [{"name": "a", "image": "a"}], "extraContainers": [{"name": "a", "image": "a"}],
    "podSecurityContext": {"runAsUser": 7}, "securityContext": {"privileged": False},
    "serviceAccount.create": False, "serviceAccount.name": "a", "serviceAccount.annotations": {"a": "b"},
    "podDisruptionBudget.enabled": False, "podDisruptionBudget.maxUnavailable": "20%",
    "networkPolicy.enabled": True,
    **{f"networkPolicy.{key}": ([{}], {"networkPolicy.enabled": True}) for key in ("from", "egress")},
    "networkPolicy.prometheusNamespace": ("monitoring", {"networkPolicy.enabled": True}),
    "serviceMonitor.enabled": True,
    **{f"serviceMonitor.{key}": (value, {"serviceMonitor.enabled": True}) for key, value in {
        "interval": "1s", "scrapeTimeout": "1s", "labels": {"a": "b"}, "relabelings": [{"action": "drop"}], "metricRelabelings": [{"action": "drop"}]}.items()},
    "prometheusRule.enabled": True, "prometheusRule.labels": ({"a": "b"}, {"prometheusRule.enabled": True}),
    "nameOverride": "a", "fullnameOverride": "a", "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}],
}


class Chart(unittest.TestCase):
    maxDiff = None

    def test_lint_finds_nothing(self):
        for name, values in CASES.items():
            for version in (VERSIONS[0], VERSIONS[-1]):
                with self.subTest(name, version=version), quiet():
                    report = helm.lint(CHART, values, strict=True, kube_version=f"v{version}")
                    # Severity 1 is advice: a chart could have an icon.
                    self.assertEqual([each for each in report["messages"] if each["severity"] > 1], [])
                    self.assertEqual(report["errors"], [])

    def test_objects_are_right_for_each_version_of_kubernetes(self):
        checked = 0
        for name, values in CASES.items():
            for (kind, called), each in objects(values).items():
                if kind in ("ServiceMonitor", "PrometheusRule"):
                    continue  # of the Prometheus Operator: below
                for version in VERSIONS:
                    if name == "gpu" and kind == "StatefulSet" and version < "1.31":
                        continue  # volumes of images came with 1.31
                    with self.subTest(name, kind=kind, called=called, version=version), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        kubernetes_validate.validate(each, version, strict=True)
                        checked += 1
        self.assertGreater(checked, 150)

    def test_each_value_has_an_effect(self):
        defaults = yaml.safe_load((CHART / "values.yaml").read_text())
        self.assertEqual(sorted(OTHERS), sorted(leaves(defaults)))
        for path, other in OTHERS.items():
            other, needed = other if isinstance(other, tuple) else (other, {})
            before = {"http": {"token": {"secret": "fixed"}}}
            for each, value in needed.items():
                before = set_at(before, each, value)
            with self.subTest(path):
                self.assertNotEqual(objects(set_at(before, path, other)), objects(before))

    # ------------------------------------------------------------------ the configuration

    def test_sources_arrive_as_they_were_written(self):
        for name, values in CASES.items():
            with self.subTest(name):
                config = tomllib.loads(configuration(values)["config.toml"])
                self.assertEqual(config["shard"], f"${{POD_INDEX}}/{values.get('replicas', 1)}")
                self.assertEqual(config.get("source", []), values.get("sources", []))
                self.assertEqual(config["http"]["listen"], f"0.0.0.0:{values.get('http', {}).get('port', 8090)}")
                for file, text in values.get("files", {}).items():
                    self.assertEqual(configuration(values)[file], text)

    def test_configurations_are_right_for_each_replica(self):
        for name, values in CASES.items():
            if name == "hostile":
                continue  # its addresses and keys are none
            for index in sorted({0, values.get("replicas", 1) - 1}):
                with self.subTest(name, replica=index), tempfile.TemporaryDirectory() as folder:
                    self.check(pathlib.Path(folder), values, index)

    def check(self, folder, values, index):
        """`gst-trt serve --check`, with folders of this machine where volumes are in the pod."""
        etc, run, data = folder / "etc", folder / "run", folder / "data"
        places = {"/run/secrets/gst-trt": str(run), "/var/lib/gst-trt": str(data), "/models/": f"{ROOT}/tests/models/"}
        for each in (etc, run / "http", run / "rtsp", data):
            each.mkdir(parents=True)
        for file in (run / "http/token", run / "rtsp/password", folder / "yard"):
            file.write_text("0123456789abcdef")
        for file, text in configuration(values).items():
            for there, here in places.items():
                text = text.replace(there, here).replace("yolo11n", "shapes")
            (etc / file).write_text(text)
        environment = {**os.environ, "POD_INDEX": str(index), "GATE_PASSWORD": "a:b@c", "CREDENTIALS_DIRECTORY": str(folder)}
        command = [os.environ["GST_TRT"], "serve", "--check", etc / "config.toml"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        # A GPU that is not here keeps no configuration from being right.
        other = [line for line in done.stderr.splitlines() if line.startswith("Warning: ") and not line.startswith("Warning: gpus: ")]
        self.assertTrue(done.returncode == 0 or "can be used" in done.stderr and not other, done.stdout + done.stderr)

    def test_a_change_of_a_file_is_a_change_of_the_configuration(self):
        first, second = ({"files": {"zones.json": text}} for text in ("{}", "[]"))
        self.assertNotEqual(configuration(first)["config.toml"], configuration(second)["config.toml"])

    # ------------------------------------------------------------------ what restarts pods, and what does not

    def test_sources_and_replicas_restart_no_pod(self):
        for name, values in CASES.items():
            changed = {**values, "replicas": values.get("replicas", 1) + 2, "sources": [SOURCE], "config": "[track]", "files": {"a": "b"}}
            with self.subTest(name):
                self.assertEqual(template(changed), template(values))

    def test_another_version_of_the_chart_restarts_no_pod(self):
        spec = one({}, "StatefulSet")["spec"]
        self.assertNotIn("helm.sh/chart", json.dumps(spec))

    def test_servers_restart_the_pods(self):
        for path in ("http.port", "rtsp.user", "rtsp.sei", "webrtc.addresses"):
            other, needed = OTHERS[path] if isinstance(OTHERS[path], tuple) else (OTHERS[path], {})
            before = {}
            for each, value in needed.items():
                before = set_at(before, each, value)
            with self.subTest(path):
                self.assertNotEqual(template(set_at(before, path, other)), template(before))

    # ------------------------------------------------------------------ pods

    def test_pods_are_restricted(self):
        """As the Pod Security Standard "restricted" wants it."""
        for name, values in CASES.items():
            spec = template(values)["spec"]
            with self.subTest(name):
                self.assertFalse(spec["automountServiceAccountToken"])
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for container in spec["initContainers"][:1] + spec["containers"][:1]:
                with self.subTest(name, container=container["name"]):
                    context = container["securityContext"]
                    self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    self.assertIs(context["allowPrivilegeEscalation"], False)

    def test_engines_lie_where_no_other_user_can_write(self):
        """The program takes engines from no other folder. Volumes come with folders that all or a group may write to."""
        spec = template(FILES["gpu"])["spec"]
        [mount] = [each for each in service_container(FILES["gpu"])["volumeMounts"] if each["name"] == "cache"]
        self.assertEqual(mount, {"name": "cache", "mountPath": "/var/cache/gst-trt", "subPath": "private"})
        command = spec["initContainers"][0]["command"]
        with tempfile.TemporaryDirectory() as folder:
            volume = pathlib.Path(folder)
            volume.chmod(0o2777)
            for _ in range(2):
                subprocess.run([each.replace("/volume", folder) for each in command], check=True)
                engine = volume / "private/engines/a.engine"
                engine.parent.mkdir(exist_ok=True)
                engine.touch()
                # As volumes do that give files to a group at each start.
                subprocess.run(["chmod", "-R", "g+rwX", volume / "private"], check=True)
            subprocess.run([each.replace("/volume", folder) for each in command], check=True)
            self.assertEqual((volume / "private").stat().st_mode & 0o777, 0o700)
            for each in (engine, engine.parent):
                self.assertEqual(each.stat().st_mode & 0o022, 0)

    def test_one_cache_for_all_is_no_claim_of_each(self):
        self.assertNotIn("volumeClaimTemplates", one(FILES["mig"], "StatefulSet")["spec"])
        [volume] = [each for each in template(FILES["mig"])["spec"]["volumes"] if each["name"] == "cache"]
        self.assertEqual(volume["persistentVolumeClaim"], {"claimName": "engines"})
        claims = one(FILES["everything"], "StatefulSet")["spec"]["volumeClaimTemplates"]
        self.assertEqual([each["metadata"]["name"] for each in claims], ["cache", "data"])

    def test_a_gpu_is_a_limit(self):
        self.assertNotIn("resources", service_container({}))
        self.assertEqual(service_container(FILES["mig"])["resources"], {"limits": {"nvidia.com/mig-1g.10gb": 1}})
        self.assertEqual(service_container(FILES["gpu"])["resources"],
                         {"limits": {"memory": "8Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": "4", "memory": "4Gi"}})
        self.assertEqual(template(FILES["gpu"])["spec"]["runtimeClassName"], "nvidia")

    def test_pods_leave_a_node_that_is_dead(self):
        own = {"key": "a", "operator": "Exists"}

        def taints(**values):
            return [(each["key"], each.get("tolerationSeconds")) for each in template(values)["spec"].get("tolerations", [])]

        limited = [("node.kubernetes.io/not-ready", 60), ("node.kubernetes.io/unreachable", 60)]
        self.assertEqual((taints(), taints(tolerations=[own])), (limited, [*limited, ("a", None)]))
        for none in ("", None):
            self.assertEqual((taints(unreachableSeconds=none), taints(unreachableSeconds=none, tolerations=[own])), ([], [("a", None)]))

    def test_several_gpus_are_all_used(self):
        def gpus(**gpu):
            return tomllib.loads(configuration({"gpu": gpu, "config": config})["config.toml"]).get("gpus")

        config = ""
        self.assertEqual((gpus(enabled=True), gpus(enabled=True, count=2), gpus(count=2)), (None, "all", None))
        config = "gpus = [0]"
        self.assertEqual(gpus(enabled=True, count=2), [0])

    def test_null_removes_users_for_clusters_that_choose_them(self):
        context = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
        values = {"podSecurityContext": context}
        self.assertEqual({"fsGroupChangePolicy", "runAsNonRoot", "seccompProfile"}, set(template(values)["spec"]["securityContext"]))

    def test_ports_have_the_same_names_everywhere(self):
        values = FILES["everything"]
        ports = {each["name"]: each["containerPort"] for each in service_container(values)["ports"]}
        self.assertEqual(ports, {"http": 8091, "rtsp": 8555, "webrtc": 8190})
        services = [each for (kind, _), each in objects(values).items() if kind == "Service"]
        self.assertEqual(len(services), 2 + values["replicas"])
        for service in services:
            self.assertEqual({each["targetPort"]: each["port"] for each in service["spec"]["ports"]}, ports)
        policy = one(values, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
        self.assertEqual([each["port"] for each in policy], list(ports.values()))

    def test_prometheus_asks_each_pod_once_with_the_token(self):
        values = FILES["everything"]
        monitor = one(values, "ServiceMonitor")["spec"]
        wanted = monitor["selector"]["matchLabels"].items()
        asked = [called for (kind, called), each in objects(values).items() if kind == "Service" and wanted <= each["metadata"]["labels"].items()]
        self.assertEqual(asked, ["cameras-detect-pods"])
        self.assertEqual(monitor["endpoints"][0]["authorization"], {"credentials": {"name": "tokens", "key": "http"}})
        # The alerts know the service by its job, whatever nameOverride says.
        self.assertEqual(values["nameOverride"], "detect")
        self.assertNotIn("jobLabel", monitor)
        job = {"targetLabel": "job", "replacement": "gst-trt"}
        self.assertEqual(monitor["endpoints"][0]["relabelings"], [job])
        more = one(set_at(values, "serviceMonitor.relabelings", [{"action": "drop"}]), "ServiceMonitor")["spec"]["endpoints"][0]
        self.assertEqual(more["relabelings"], [job, {"action": "drop"}])
        rules = yaml.safe_load((ROOT / "packaging/prometheus/gst-trt.rules.yml").read_text())
        self.assertEqual(one(values, "PrometheusRule")["spec"], rules)

    # ------------------------------------------------------------------ secrets

    def test_the_token_is_made_where_there_is_none(self):
        made = [base64.b64decode(one({}, "Secret")["data"]["token"]) for _ in range(2)]
        self.assertTrue(all(len(each) == 48 and each.isalnum() for each in made))
        self.assertNotEqual(*made)
        self.assertNotIn("Secret", [kind for kind, _ in objects({"http": {"token": {"secret": "mine"}}})])

    def test_what_must_be_secret_can_be(self):
        values = {"configKind": "Secret", "http": {"token": {"secret": "mine"}}, "sources": [SOURCE]}
        self.assertNotIn("ConfigMap", [kind for kind, _ in objects(values)])
        [volume] = [each for each in template(values)["spec"]["volumes"] if each["name"] == "config"]
        self.assertEqual(volume["secret"]["secretName"], one(values, "Secret")["metadata"]["name"])

    def test_passwords_that_are_no_secret_in_the_text_are_taken(self):
        for values in (
            {"sources": [{"name": "a", "address": "rtsp://admin:${GATE}@10.0.0.21/"}, {"name": "b", "address": "rtsp://admin@10.0.0.22:554/a@b"}]},
            {"sources": [{"name": "a", "address": "rtsp://admin:open@10.0.0.21/"}], "configKind": "Secret"},
            {"sources": [{"name": "a", "address": "rtsp://10.0.0.21/user=admin&password=${GATE}&channel=1"},
                         {"name": "b", "address": "http://h/v?token=${GATE}&x=1"}, {"name": "c", "address": "rtsp://${USER}:${GATE}@h/"},
                         {"name": "d", "address": "rtsp://h:554/key/pass?keyframe=1&channel=1"}]},
            {"config": "location = \"amqp://h/a?exchange=b\" # and key=c, a:b@c", "files": {"labels": "token = 1\n;a=b\n"}},
        ):
            with self.subTest(values=values):
                objects(values)

    # ------------------------------------------------------------------ what is refused

    def test_mistakes_are_refused_with_their_reason(self):
        named = {"sources": [{"name": "a", "address": "x"}]}
        for values, words in [
            ({"sources": [SOURCE, {"name": "b", "address": "x"}, SOURCE]}, ["\"a\" is there twice", "sources[0]", "sources[2]", "another name"]),
            ({"config": "[track]\n  [ http ]\nlisten = 1"}, ["[http] is written by the chart", "value http"]),
            ({"config": "[[source]]"}, ["[[source]] is written by the chart", "value sources"]),
            ({"config": "shard = \"0/1\""}, ["from the value replicas"]),
            ({"config": "a = \"\u2028\""}, ["the value config: it has a control character or a line break"]),
            ({"files": {"zones.json": "\u0085"}}, ["zones.json: it has a control character"]),
            ({"config": "\u007f"}, ["a control character"]),
            ({"files": {"config.toml": ""}}, ["config.toml is written by the chart"]),
            ({"files": {"a": 1000001 * "x"}}, ["1 MiB", "volume"]),
            ({"rtsp": {"enabled": True}}, ["rtsp.password.secret"]),
            ({"sources": [{"name": "a", "address": "rtsp://admin:open@10.0.0.21/"}]},
             ["the address of the source a: it has a password", "envFromSecrets", "configKind"]),
            ({"config": "location = 'mqtt://me:open@broker/a'"}, ["the value config: it has a password"]),
            *(({"sources": [{"name": "a", "address": address}]}, ["the address of the source a: it has a password or a token"])
              for address in ("rtsp://10.0.0.21/user=admin&password=hunter2&channel=1", "http://h/v?token=abc", "http://h/v?x=1&PWD=y",
                              "http://h/v?X-Amz-Signature=abc", "rtsp://admin:it's1@10.0.0.21/", "rtsp://${USER}:open@10.0.0.21/")),
            ({"config": "location = \"https://h/hook?api_key=abc\""}, ["the value config: it has a password or a token"]),
            ({"files": {"more.toml": "http://h/v?a=b&auth=YWRtaW4="}}, ["more.toml: it has a password or a token"]),
            ({"sources": [{"name": "a", "address": "x", "record": {"keep": None}}]}, ["sources[0].record.keep has no value"]),
            # By the schema.
            ({"sources": [{"name": "a"}]}, ["/sources/0", "address"]),
            ({"sources": [{"name": "a b", "address": "x"}]}, ["/sources/0/name"]),
            ({"sources": [{"name": ".a", "address": "x"}]}, ["/sources/0/name"]),
            ({"sources": [{"name": 1, "address": "x"}]}, ["/sources/0/name"]),
            ({"sources": [{"name": "a\n", "address": "x"}]}, ["/sources/0/name"]),
            ({"sources": [{"name": "a", "address": "x", "adress": "x"}]}, ["/sources/0", "adress"]),
            ({"sources": [{"name": "a", "address": "x", "loop": "yes"}]}, ["/sources/0/loop"]),
            ({"sources": [{"name": "a", "address": "x", "timeout": "10"}]}, ["/sources/0/timeout"]),
            ({"sources": [{"name": "a", "address": "x", "record": True}]}, ["/sources/0/record"]),
            ({"sources": {"a": "x"}}, ["/sources"]),
            ({**named, "replicas": 0}, ["/replicas"]),
            ({**named, "replicas": "3"}, ["/replicas"]),
            ({**named, "replicas": 2.5}, ["/replicas"]),
            ({"replica": 3}, ["replica"]),
            ({"files": {"../a": ""}}, ["'../a' does not match"]),
            ({"http": {"port": 70000}}, ["/http/port"]),
            ({"http": {"token": {"secret": "A secret!"}}}, ["/http/token/secret"]),
            ({"gpu": {"resource": "gpu"}}, ["/gpu/resource"]),
            ({"configKind": "Pod"}, ["/configKind"]),
            ({"terminationGracePeriodSeconds": 3}, ["/terminationGracePeriodSeconds"]),
            ({"models": {"volume": {"emptyDir": {}, "nfs": {}}}}, ["/models/volume"]),
            ({"image": {"digest": "latest"}}, ["/image/digest"]),
        ]:
            with self.subTest(values=str(values)[:120]):
                with self.assertRaises(helm.HelmError) as refused:
                    LOADED.validate_schema(values)
                    texts(values)
                said = str(refused.exception)
                for word in words:
                    self.assertTrue(word in said or word.replace("/", ".").strip(".") in said, f"{word!r} is not in: {said}")

    # ------------------------------------------------------------------ the chart as a whole

    def test_notes_lead_on(self):
        [notes] = [text for path, text in texts({}).items() if path.endswith("NOTES.txt")]
        for words in ("no sources yet", "image.repository", "rollout status statefulset/cameras-gst-trt", "secret cameras-gst-trt-http", "--namespace video"):
            self.assertIn(words, notes)
        [notes] = [text for path, text in texts({"gpu": {"enabled": True}, "networkPolicy": {"enabled": True}, "serviceMonitor": {"enabled": True}}).items()
                   if path.endswith("NOTES.txt")]
        for words in ("backend = \"tensorrt\"", "networkPolicy.prometheusNamespace"):
            self.assertIn(words, notes)
        [notes] = [text for path, text in texts(FILES["gpu"]).items() if path.endswith("NOTES.txt")]
        self.assertNotIn("no sources yet", notes)
        self.assertNotIn("image.repository", notes)

    def test_long_names_are_cut(self):
        for release in ("a" * 53, "cameras"):
            rendered = LOADED.render({"fullnameOverride": "b" * 70} if release == "cameras" else {}, name=release, namespace="video")
            for text in rendered.values():
                for each in yaml.safe_load_all(text) if "kind:" in text else []:
                    if each:
                        self.assertLessEqual(len(each["metadata"]["name"]), 63)

    def test_it_packs_with_the_alerts(self):
        with tempfile.TemporaryDirectory() as folder, quiet():
            archive = helm.package(CHART, destination=folder)
            with helm.Chart.load(archive) as packed:
                files = {each["name"]: each["data"] for each in packed.files}
                self.assertIn("files/gst-trt.rules.yml", files)
                rules = packed.render({"prometheusRule": {"enabled": True}}, name="a", namespace="b")["gst-trt/templates/monitoring.yaml"]
        self.assertIn("GstTrtSourceFailing", rules)
