package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestWorkloads: a workload becomes pods of its template, Options.Replicas of them unless it is a DaemonSet. Their
// owner references name the workload.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	text := ""
	for _, kind := range []string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"} {
		text += fmt.Sprintf(`---
apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: team}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
`, kind, strings.ToLower(kind))
	}
	set, err := read(Options{Replicas: 2}, text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range set.Pods {
		owner := p.OwnerReferences[0]
		got = append(got, fmt.Sprintf("%s/%s of %s/%s, %s %s", p.Namespace, p.Name, owner.Kind, owner.Name, p.Labels["tier"], p.Spec.RestartPolicy))
	}
	want := []string{
		"team/deployment-0 of Deployment/deployment, front Always", "team/replicaset-0 of ReplicaSet/replicaset, front Always",
		"team/statefulset-0 of StatefulSet/statefulset, front Always", "team/daemonset-0 of DaemonSet/daemonset, front Always",
		"team/deployment-1 of Deployment/deployment, front Always", "team/replicaset-1 of ReplicaSet/replicaset, front Always",
		"team/statefulset-1 of StatefulSet/statefulset, front Always",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// workloadOf returns a workload with one container. spec adds fields to the workload's spec.
func workloadOf(kind, name, spec string) string {
	return fmt.Sprintf("---\n{apiVersion: apps/v1, kind: %s, metadata: {name: %s}, spec: {%s, selector: {matchLabels: {app: web}},"+
		" template: {metadata: {labels: {app: web}}, spec: {imagePullSecrets: [{name: reg}], containers: [{name: main, image: 'busybox:1'}]}}}}\n", kind, name, spec)
}

// TestReplicas: ignored replicas fields cause one warning. Further pods are validated like the first.
func TestReplicas(t *testing.T) {
	t.Parallel()
	text := workloadOf("Deployment", "web", "replicas: 3") + workloadOf("StatefulSet", "db", "replicas: 0") + workloadOf("ReplicaSet", "one", "replicas: 1")
	for replicas, want := range map[int][]string{
		0: {"pull secrets are not in the input: default/reg", "one pod runs of each, --replicas N runs more: Deployment default/web has 3, StatefulSet default/db has 0"},
		2: {"pull secrets are not in the input: default/reg"},
	} {
		set, err := read(Options{Replicas: replicas}, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, set.Warnings); diff != "" || len(set.Pods) != 3*max(replicas, 1) {
			t.Errorf("%d replicas: %d pods, %s", replicas, len(set.Pods), diff)
		}
	}
	for text, want := range map[string]string{
		workloadOf("Deployment", "web", "replicas: 1") + "---" + strings.Replace(minimal, "web", "web-2", 1): "document 1: spec.template.metadata.name: Pod default/web-2 is already defined in standard input, document 2",
		workloadOf("Deployment", strings.Repeat("a", 255-len("default__-0")-36), "replicas: 1"):              "must be shorter by 1 characters",
	} {
		if _, err := read(Options{Replicas: 11}, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	text = ""
	for i := range 11 {
		text += workloadOf("Deployment", fmt.Sprintf("web%d", i), "replicas: 1")
	}
	if _, err := read(Options{Replicas: 1000}, text); err == nil || !strings.Contains(err.Error(), "more than 10000 objects") {
		t.Errorf("got %.300v", err)
	}
}

// TestPodsOfStatefulSets: each pod has its name in a label, and its own claims.
func TestPodsOfStatefulSets(t *testing.T) {
	t.Parallel()
	set, err := read(Options{Replicas: 2, VolumeDir: "/claims"}, workloadOf("StatefulSet", "db", "volumeClaimTemplates: [{metadata: {name: data}}]"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range set.Pods {
		got = append(got, fmt.Sprint(p.Spec.Volumes[0].Name, " ", p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, " ", p.Labels, " ", p.Annotations))
	}
	want := []string{
		"data data-db-0 map[app:web apps.kubernetes.io/pod-index:0 statefulset.kubernetes.io/pod-name:db-0] map[crishim.io/volume-dir:/claims]",
		"data data-db-1 map[app:web apps.kubernetes.io/pod-index:1 statefulset.kubernetes.io/pod-name:db-1] map[crishim.io/volume-dir:/claims]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestClaims: a claim needs a document or --volume-dir. Two pods with the same claim cause one warning.
func TestClaims(t *testing.T) {
	t.Parallel()
	const document = "---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}\n"
	pod := func(name string) string {
		return "---\n" + strings.Replace(minimal, "web", name, 1) + "  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n"
	}
	for _, c := range []struct {
		text string
		any  bool
	}{{document + pod("a") + pod("b"), false}, {pod("a") + pod("b"), true}} {
		set, err := read(Options{VolumeDir: "/claims", AnyClaim: c.any}, c.text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"claims are directories in /claims, which delete keeps: default/data"}, set.Warnings); diff != "" {
			t.Error(diff)
		}
	}
	for claim, want := range map[string]string{
		"data":      `claimName: Invalid value: "data": PersistentVolumeClaim default/data is not in the input, and there is no --volume-dir`,
		"../../etc": `claimName: Invalid value: "../../etc": a lowercase RFC 1123 subdomain`,
		"..":        `claimName: Invalid value: "..": a lowercase RFC 1123 subdomain`,
		"a/b":       `claimName: Invalid value: "a/b": a lowercase RFC 1123 subdomain`,
		".hidden":   `claimName: Invalid value: ".hidden": a lowercase RFC 1123 subdomain`,
	} {
		if _, err := read(Options{AnyClaim: claim != "data"}, strings.Replace(pod("a"), ": data}", ": "+claim+"}", 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", claim, err, want)
		}
	}
	// A manifest cannot set the directory of claims.
	set, err := parse(strings.Replace(minimal, "{name: web}", "{name: web, annotations: {crishim.io/volume-dir: /etc}}", 1))
	if err != nil || len(set.Pods[0].Annotations) > 0 {
		t.Errorf("got %+v, %v", set.Pods, err)
	}
}

func job(kind, template, spec string) string {
	job := "template: {spec: {" + template + ", containers: [{name: main, image: 'busybox:1'}]}}, " + spec
	if kind == "CronJob" {
		job = "schedule: '@daily', jobTemplate: {spec: {" + job + "}}"
	}
	return "{apiVersion: batch/v1, kind: " + kind + ", metadata: {name: pi}, spec: {" + job + "}}"
}

// TestJobs: a Job becomes one pod with the limits of the Job.
func TestJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, template, spec, want string }{
		{"Job", "restartPolicy: Never", "backoffLimit: 4, completions: 1, ttlSecondsAfterFinished: 100, activeDeadlineSeconds: 60", "Never [RestartAllContainers NotIn [0]], limit 4, deadline 60, []"},
		{"Job", "restartPolicy: Never, activeDeadlineSeconds: 9", "backoffLimit: 0, activeDeadlineSeconds: 60", "Never [], limit 0, deadline 9, []"},
		{"Job", "restartPolicy: OnFailure", "parallelism: 1", "OnFailure [], limit 6, deadline 0, []"},
		{"CronJob", "restartPolicy: OnFailure", "backoffLimit: 2", "OnFailure [], limit 2, deadline 0, [runs once, without its schedule: default/pi]"},
	} {
		set, err := parse(job(c.kind, c.template, c.spec))
		if err != nil {
			t.Fatal(err)
		}
		p := set.Pods[0]
		deadline := int64(0)
		if d := p.Spec.ActiveDeadlineSeconds; d != nil {
			deadline = *d
		}
		rules := []string{}
		for _, rule := range p.Spec.Containers[0].RestartPolicyRules {
			rules = append(rules, fmt.Sprint(rule.Action, " ", rule.ExitCodes.Operator, " ", rule.ExitCodes.Values))
		}
		got := fmt.Sprintf("%s %v, limit %s, deadline %d, %v", p.Spec.RestartPolicy, rules, p.Annotations["crishim.io/job.backoff-limit"], deadline, set.Warnings)
		if got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		if p.Name != "pi-0" || p.OwnerReferences[0].Kind != c.kind || p.Labels["job-name"] != "pi" {
			t.Errorf("got %+v", p.ObjectMeta)
		}
	}
}

// TestNodeLabels: selectors and affinity match the labels in Options.NodeLabels.
func TestNodeLabels(t *testing.T) {
	t.Parallel()
	text := minimal + `
  nodeSelector: {disk: ssd}
  affinity:
    nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: NotIn, values: [a]}, {key: disk, operator: Exists}]}]}}
`
	if _, err := read(Options{NodeLabels: map[string]string{"disk": "ssd", "zone": "b"}}, text); err != nil {
		t.Error(err)
	}
	for _, labels := range []map[string]string{nil, {"disk": "hdd"}, {"disk": "ssd", "zone": "a"}} {
		if _, err := read(Options{NodeLabels: labels}, text); err == nil || !strings.Contains(err.Error(), "this node") {
			t.Errorf("%v: got %v", labels, err)
		}
	}
}

// TestNamesOnly: delete needs only the names in a manifest, so other problems are ignored.
func TestNamesOnly(t *testing.T) {
	t.Parallel()
	text := minimal + "  nodeSelector: {disk: ssd}\n  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n"
	set, err := read(Options{NamesOnly: true}, text)
	if err != nil || len(set.Pods) != 1 {
		t.Errorf("got %+v, %v", set.Pods, err)
	}
	if _, err := read(Options{NamesOnly: true}, strings.Replace(text, "web", "A_B", 1)); err == nil {
		t.Error("a wrong name is accepted")
	}
}

// TestStrict: each object that needs an API server is an error with its document.
func TestStrict(t *testing.T) {
	t.Parallel()
	_, err := read(Options{Strict: true}, minimal+"---\n{apiVersion: v1, kind: Service, metadata: {name: a}}\n")
	if want := "standard input: document 2: kind: Service needs an API server"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestGenerateName: generateName is refused with a hint, because the next apply would create another pod.
func TestGenerateName(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Replace(minimal, "name: web", "generateName: web-", 1),
		strings.Replace(job("Job", "restartPolicy: Never", ""), "name: pi", "generateName: pi-", 1),
	} {
		_, err := parse(text)
		problems, ok := errors.AsType[Errors](err)
		if !ok || len(problems) != 1 || problems[0].Error() != "standard input: document 1: metadata.generateName: needs an API server" ||
			problems[0].Hint() != "give it a metadata.name, by which the next apply and delete find it" {
			t.Errorf("got %v", err)
		}
	}
	// A pod of a ReplicaSet has both names.
	set, err := parse(strings.Replace(minimal, "name: web", "name: web-x, generateName: web-", 1))
	if err != nil || set.Pods[0].Spec.RestartPolicy != v1.RestartPolicyAlways {
		t.Error(err)
	}
}
