package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test/kubeapi"
)

// released returns the first version in CHANGELOG.md, which is the tag of a release.
func released(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`(?m)^## (v\S+)$`).FindSubmatch(text)
	if title == nil {
		t.Fatal("CHANGELOG.md names no release")
	}
	return string(title[1])
}

// overlay is the build result of a folder of packaging/kubernetes.
type overlay struct {
	objects []string // kinds and names
	set     appsv1.DaemonSet
	roles   map[string][]string // rights by role
}

// build builds a folder like kubectl kustomize and decodes the result strictly.
func build(t *testing.T, name string) overlay {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("../../packaging/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	o := overlay{roles: map[string][]string{}}
	for _, resource := range built.Resources() {
		var role rbacv1.ClusterRole
		into, known := map[string]any{
			"Namespace": &corev1.Namespace{}, "ServiceAccount": &corev1.ServiceAccount{}, "ClusterRole": &role, "DaemonSet": &o.set,
		}[resource.GetKind()]
		if !known {
			t.Fatalf("%s: unknown kind %s", name, resource.GetKind())
		}
		data, err := resource.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(into); err != nil {
			t.Errorf("%s: %s: %v", name, resource.GetKind(), err)
		}
		o.objects = append(o.objects, resource.GetKind()+" "+resource.GetName())
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					o.roles[role.Name] = append(o.roles[role.Name], verb+" "+resource)
				}
			}
		}
	}
	return o
}

// TestRolesAreWhatThePluginNeeds checks that the roles allow exactly the plugin's requests.
func TestRolesAreWhatThePluginNeeds(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	c.SetState("node-02", kubeapi.Stuck)
	c.SetState("node-03", kubeapi.NotReady)
	c.run(t.Context(), "--all --node-timeout 2s -- version")
	c.run(t.Context(), "--node node-01 -- version")
	c.left()
	asked := map[string]bool{"get pods/exec": true} // for WebSockets; not recorded by the test server
	for _, r := range c.Requests() {
		words := strings.Fields(r)
		asked[words[0]+" "+words[1]] = true
	}
	allowed := map[string]bool{}
	for _, rights := range build(t, "base").roles {
		for _, right := range rights {
			allowed[right] = true
		}
	}
	if diff := cmp.Diff(allowed, asked); diff != "" {
		t.Errorf("rights (-roles +requests):\n%s", diff)
	}
}

func hostPaths(spec corev1.PodSpec) map[string]bool {
	paths := map[string]bool{}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			paths[v.Name+" "+v.HostPath.Path] = true
		}
	}
	return paths
}

func envNames(c corev1.Container) (names []string) {
	for _, e := range c.Env {
		names = append(names, e.Name)
	}
	return names
}

// TestDaemonSetIsWhatThePluginLooksFor checks that the plugin finds the DaemonSet's pods and that they have no more
// rights than the plugin's own pods.
func TestDaemonSetIsWhatThePluginLooksFor(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string]string{"base": kube.RightsRead, "change": kube.RightsChange, "metrics": kube.RightsRead} {
		built := build(t, name)
		want := []string{"ClusterRole crishim-exec", "ClusterRole crishim-nodes", "ClusterRole crishim-pods", "DaemonSet crishim", "Namespace crishim", "ServiceAccount crishim"}
		if slices.Sort(built.objects); !slices.Equal(built.objects, want) { // no role binding to a user
			t.Errorf("%s: got %q", name, built.objects)
		}
		if diff := cmp.Diff(map[string][]string{
			"crishim-nodes": {"get nodes", "list nodes", "get namespaces"},
			"crishim-exec":  {"get pods", "list pods", "watch pods", "get pods/exec", "create pods/exec"},
			"crishim-pods":  {"get pods", "list pods", "watch pods", "create pods", "delete pods", "get pods/exec", "create pods/exec", "list events"},
		}, built.roles); diff != "" {
			t.Errorf("%s: rights (-want +got):\n%s", name, diff)
		}
		template := built.set.Spec.Template
		if built.set.Namespace != kube.ClusterNamespace || template.Labels[kube.LabelApp] != kube.LabelAppValue || template.Labels[kube.LabelRights] != rights ||
			template.Labels[kube.LabelManagedBy] != "" {
			t.Errorf("%s: %s, labels %v", name, built.set.Namespace, template.Labels)
		}
		annotations := map[string]map[string]string{"metrics": {"prometheus.io/scrape": "true", "prometheus.io/port": "9101", "prometheus.io/path": "/metrics"}}[name]
		if diff := cmp.Diff(annotations, template.Annotations); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
		}
		standing := template.Spec.Containers[0]
		ours := podFor(nodeWith("containerd://1.7.2", "v1.30.0", nil), cli.NodeLine{OnNode: cli.OnNode{Rights: rights, Logs: true}}, defaultImage(released(t)), false).Spec
		made := ours.Containers[0]
		if diff := cmp.Diff(hostPaths(ours), hostPaths(template.Spec)); diff != "" {
			t.Errorf("%s: mounts of the host (-plugin's +DaemonSet's):\n%s", name, diff)
		}
		if standing.Name != made.Name || standing.Image != made.Image {
			t.Errorf("%s: container %s of %s, the plugin's are %s of %s", name, standing.Name, standing.Image, made.Name, made.Image)
		}
		if diff := cmp.Diff(made.Command, standing.Command); diff != "" {
			t.Errorf("%s: command (-plugin's +DaemonSet's):\n%s", name, diff)
		}
		if diff := cmp.Diff(envNames(made), envNames(standing)); diff != "" {
			t.Errorf("%s: environment (-plugin's +DaemonSet's):\n%s", name, diff)
		}
		if diff := cmp.Diff(made.SecurityContext, standing.SecurityContext); diff != "" {
			t.Errorf("%s: security context (-plugin's +DaemonSet's):\n%s", name, diff)
		}
		if diff := cmp.Diff(ours.Tolerations, template.Spec.Tolerations); diff != "" || template.Spec.HostPID != ours.HostPID || template.Spec.HostNetwork != ours.HostNetwork {
			t.Errorf("%s: %s, %+v", name, diff, template.Spec)
		}
		for _, v := range template.Spec.Volumes {
			if v.EmptyDir != nil && v.EmptyDir.SizeLimit.IsZero() {
				t.Errorf("%s: volume %s has no limit of its size", name, v.Name)
			}
		}
		for _, m := range standing.VolumeMounts {
			if writable := m.Name == "tmp" || m.Name == "logs" && rights == kube.RightsChange; m.ReadOnly == writable {
				t.Errorf("%s: %s is mounted read-only: %t", name, m.MountPath, m.ReadOnly)
			}
		}
	}
}
