package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBadManifests compares the document and the path of each problem. testdata/bad.txt describes the format of a case.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "bad.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(text), "\n## ")[1:]
	for _, one := range cases {
		want, in, _ := strings.Cut(one, "\n")
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, err := parse(expandCase(t, in))
			if err == nil || !strings.Contains("\n"+err.Error(), "\nstandard input: "+want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if len(cases) < 80 {
		t.Errorf("got %d cases", len(cases))
	}
}

// expandCase inserts the invalid part of a case into a valid pod.
func expandCase(t *testing.T, in string) string {
	t.Helper()
	kind, rest, _ := strings.Cut(in, ": ")
	rest = strings.TrimSpace(rest)
	if inner, ok := strings.CutPrefix(rest, "{"); ok && kind == "spec" {
		rest = strings.TrimSuffix(inner, "}")
	}
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {"
	switch kind {
	case "all":
		return rest
	case "spec":
		return pod + "containers: [{name: main, image: 'busybox:1'}], " + rest + "}}"
	case "container":
		return pod + "containers: [{name: main, image: 'busybox:1', " + rest + "}]}}"
	}
	t.Fatalf("unknown case %q", kind)
	return ""
}

func TestValidateAccepts(t *testing.T) {
	t.Parallel()
	_, err := parse(`
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  priorityClassName: system-node-critical
  serviceAccountName: default
  tolerations: [{operator: Exists}]
  hostNetwork: true
  imagePullSecrets: [{name: reg}]
  initContainers:
  - {name: side, image: busybox, restartPolicy: Always, startupProbe: {exec: {command: [true.sh]}}}
  containers:
  - name: main
    image: busybox
    ports: [{name: http, containerPort: 80}]
    envFrom: [{configMapRef: {name: gone, optional: true}}]
    env:
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: L, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: M, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
    readinessProbe: {httpGet: {port: http}}
    volumeMounts: [{name: p, mountPath: /p}]
  volumes:
  - name: p
    projected: {sources: [{secret: {name: reg}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}
---
apiVersion: v1
kind: Secret
metadata: {name: reg}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: "{}"}
`)
	if err != nil {
		t.Error(err)
	}
}

// TestSchedulingAndAccounts: a pod that matches this node is accepted. Preferences are ignored, and the pod gets no
// token.
func TestSchedulingAndAccounts(t *testing.T) {
	t.Parallel()
	set, err := parse(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  serviceAccountName: robot
  automountServiceAccountToken: true
  imagePullSecrets: [{name: reg}]
  nodeSelector: {kubernetes.io/os: linux, beta.kubernetes.io/os: linux}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  affinity:
    podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: disk, operator: Exists}]
        - matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux, windows]}, {key: disk, operator: DoesNotExist}]
  containers: [{name: main, image: "busybox:1"}]
  volumes: [{name: token, projected: {sources: [{serviceAccountToken: {path: t}}]}}]
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pull secrets are not in the input: default/reg",
		"there is no API server: pods get no token of their service account: default/web",
	}
	if diff := cmp.Diff(want, set.Warnings); diff != "" {
		t.Error(diff)
	}
}

// TestKindsOfAnAPIServer: objects that need an API server are skipped with one warning.
func TestKindsOfAnAPIServer(t *testing.T) {
	t.Parallel()
	set, err := parse(minimal + `---
{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {anything: goes}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: b}}
- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, rules: [{verbs: ["*"]}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"left out, as they need an API server: 1 ClusterRole, 2 Service"}, set.Warnings); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"{apiVersion: apps/v1, kind: Service}":                         `apiVersion: invalid "apps/v1": must begin with "v1" for a Service`,
		"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor}": "kind: ServiceMonitor is not supported",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
