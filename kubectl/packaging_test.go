package kubectl

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/kubeapi"
)

// documents decodes manifests strictly and returns the DaemonSet among them.
func documents(t *testing.T, text []byte) (set appsv1.DaemonSet) {
	t.Helper()
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		data, err := yaml.ToJSON(doc)
		if err != nil {
			t.Fatal(err)
		}
		var kind struct{ Kind string }
		if err := json.Unmarshal(data, &kind); err != nil {
			t.Fatal(err)
		}
		into, known := map[string]any{
			"Namespace": &corev1.Namespace{}, "ServiceAccount": &corev1.ServiceAccount{}, "ClusterRole": &rbacv1.ClusterRole{}, "DaemonSet": &set,
		}[kind.Kind]
		if !known {
			t.Fatalf("unknown kind %q in %s", kind.Kind, doc)
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(into); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
		if n, ok := into.(*corev1.Namespace); ok && n.Name != kube.ClusterNamespace {
			t.Errorf("namespace %s", n.Name)
		}
	}
	return set
}

// TestRolesAreWhatThePluginNeeds: what it asks the API server is what the roles for it allow, and no less.
func TestRolesAreWhatThePluginNeeds(t *testing.T) {
	t.Parallel()
	c := withStub(t)
	c.SetState("node-02", kubeapi.Stuck)
	c.SetState("node-03", kubeapi.NotReady)
	c.run(t.Context(), "--all --node-timeout 2s -- version")
	c.run(t.Context(), "--node node-01 -- version")
	c.left()
	asked := map[string]bool{"get pods/exec": true} // which a WebSocket is by roles, and here only when it is forbidden
	for _, r := range c.Requests() {
		words := strings.Fields(r)
		asked[words[0]+" "+words[1]] = true
	}
	text, err := os.ReadFile("../packaging/kubernetes/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					allowed[verb+" "+resource] = true
				}
			}
		}
	}
	if diff := cmp.Diff(allowed, asked); diff != "" {
		t.Errorf("rights (-roles +requests):\n%s", diff)
	}
}

// hostPaths are what a pod has of the host.
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

// TestDaemonSetIsWhatThePluginLooksFor: it stands where the plugin looks, and may do no more than a pod of the plugin.
func TestDaemonSetIsWhatThePluginLooksFor(t *testing.T) {
	t.Parallel()
	const dir = "../packaging/kubernetes"
	program, err := exec.LookPath("kubectl")
	if err != nil {
		test.Missing(t, "no kubectl")
	}
	for overlay, rights := range map[string]string{"base": kube.RightsRead, "change": kube.RightsChange, "metrics": kube.RightsRead} {
		var problems bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, "kustomize", filepath.Join(dir, overlay))
		cmd.Stderr = &problems
		text, err := cmd.Output()
		if old := strings.Contains(problems.String(), "cannot unmarshal"); err != nil && overlay != "base" && old {
			continue // by Debian's kubectl 1.20, which has no patches
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", overlay, err, problems.String())
		}
		set := documents(t, text)
		template := set.Spec.Template
		if set.Namespace != kube.ClusterNamespace || template.Labels[kube.LabelApp] != kube.LabelAppValue || template.Labels[kube.LabelRights] != rights ||
			template.Labels[kube.LabelManagedBy] != "" {
			t.Errorf("%s: %s, labels %v", overlay, set.Namespace, template.Labels)
		}
		if got := template.Annotations["prometheus.io/scrape"] == "true"; got != (overlay == "metrics") {
			t.Errorf("%s: annotations %v", overlay, template.Annotations)
		}
		standing := template.Spec.Containers[0]
		ours := podFor(nodeWith("containerd://1.7.2", "v1.30.0", nil), cli.Line{OverNodes: cli.OverNodes{Rights: rights, Files: true}}, defaultImage("latest"), false).Spec
		made := ours.Containers[0]
		if diff := cmp.Diff(hostPaths(ours), hostPaths(template.Spec)); diff != "" {
			t.Errorf("%s: mounts of the host (-plugin's +DaemonSet's):\n%s", overlay, diff)
		}
		if standing.Name != made.Name || standing.Image != made.Image {
			t.Errorf("%s: container %s of %s, the plugin's are %s of %s", overlay, standing.Name, standing.Image, made.Name, made.Image)
		}
		if diff := cmp.Diff(made.Command, standing.Command); diff != "" {
			t.Errorf("%s: command (-plugin's +DaemonSet's):\n%s", overlay, diff)
		}
		if diff := cmp.Diff(envNames(made), envNames(standing)); diff != "" {
			t.Errorf("%s: environment (-plugin's +DaemonSet's):\n%s", overlay, diff)
		}
		if diff := cmp.Diff(made.SecurityContext, standing.SecurityContext); diff != "" {
			t.Errorf("%s: security context (-plugin's +DaemonSet's):\n%s", overlay, diff)
		}
		if diff := cmp.Diff(ours.Tolerations, template.Spec.Tolerations); diff != "" || template.Spec.HostPID != ours.HostPID || template.Spec.HostNetwork != ours.HostNetwork {
			t.Errorf("%s: %s, %+v", overlay, diff, template.Spec)
		}
		for _, m := range standing.VolumeMounts {
			if writable := m.Name == "tmp" || m.Name == "logs" && rights == kube.RightsChange; m.ReadOnly == writable {
				t.Errorf("%s: %s is mounted read-only: %t", overlay, m.MountPath, m.ReadOnly)
			}
		}
	}
}
