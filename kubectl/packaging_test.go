package kubectl

import (
	"bytes"
	"encoding/json"
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
		ours := podFor(nodeWith("containerd://1.7.2", "v1.30.0", nil), cli.Line{OverNodes: cli.OverNodes{Rights: rights}}, defaultImage("latest"), false).Spec
		made := ours.Containers[0]
		if standing.Name != made.Name || standing.Image != made.Image {
			t.Errorf("%s: container %s of %s, the plugin's are %s of %s", overlay, standing.Name, standing.Image, made.Name, made.Image)
		}
		if diff := cmp.Diff(made.Command, standing.Command); diff != "" {
			t.Errorf("%s: command (-plugin's +DaemonSet's):\n%s", overlay, diff)
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
