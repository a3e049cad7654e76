package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/diagnose"
	"github.com/crishim/crishim/output"
)

// death is a pod that is made to die.
type death struct {
	manifest string // rest of its container
	pod      string // rest of its pod's spec
	want     string // severity and code, "" for none
}

// deaths are all of which an engine shows something that recorded facts may not.
var deaths = map[string]death{
	"fine":     {`command: [sleep, "1000"]`, "", ""},
	"done":     {`command: ["true"]`, "", ""},
	"oom":      {`command: [sh, -c, "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"], resources: {limits: {memory: 16Mi}}`, "", "error out-of-memory"},
	"child":    {`command: [sh, -c, "sh -c 'x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done'; sleep 1000"], resources: {limits: {memory: 16Mi}}`, "", "warning process-killed"},
	"liar":     {`command: [sh, -c, "echo 'Out of memory: Killed process 1 (main)'; echo 'OCI runtime create failed: exec: no such file or directory' | tee /dev/termination-log; exit 3"]`, "", "error exited"},
	"forger":   {`command: [sh, -c, "exit 4"]`, "", "error exited"},
	"crash":    {`command: [sh, -c, "exit 139"]`, "", "error ended-by-signal"},
	"notfound": {`command: [nosuchcommand]`, "", "error command-not-found"},
	"nofile":   {`command: [/bin/nosuch]`, "", "error command-not-found"},
	"noexec":   {`command: [/etc/passwd]`, "", "error not-executable"},
	"folder":   {`command: [/bin]`, "", "error not-executable"},
	"shell":    {`command: [sh, -c, nosuchcommand]`, "", "error exited"},
	"noimage":  {`image: "localhost:1/no/such:1"`, "", "error registry-not-found"},
	"never":    {`image: "localhost:1/no/such:1", imagePullPolicy: Never`, "", "error image-not-present"},
	"unready":  {`command: [sleep, "1000"], readinessProbe: {exec: {command: ["false"]}}`, "", "error not-ready"},
	"hook":     {`command: [sleep, "1000"], lifecycle: {postStart: {exec: {command: ["false"]}}}`, "terminationGracePeriodSeconds: 1, ", "error hook-failed"},
	"killed":   {`command: [sleep, "1000"]`, "", "note stopped"},
	"stopped":  {`command: [sleep, "1000"]`, "terminationGracePeriodSeconds: 0, ", "note stopped"},
}

// TestStagedDeaths makes pods die at once, and asks why.
func TestStagedDeaths(t *testing.T) {
	eachRuntime(t, func(t *testing.T, endpoint, image string) {
		dir := t.TempDir()
		env := engineEnv(t, endpoint, filepath.Join(dir, "root"))
		namespace := fmt.Sprintf("why-%d", os.Getpid())
		var text strings.Builder
		for name, d := range deaths {
			if !strings.Contains(d.manifest, "image:") {
				d.manifest += ", imagePullPolicy: IfNotPresent, image: " + image
			}
			fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {reason: OOMKilled}, annotations: {io.kubernetes.container.reason: OOMKilled}}\nspec: {%srestartPolicy: Never, containers: [{name: main, %s}]}\n", name, namespace, d.pod, d.manifest)
		}
		file := filepath.Join(dir, "pods.yaml")
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := openPodRuntime(t.Context(), env, podRuntimeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			o := deleteOptions{names: slices.Collect(maps.Keys(deaths)), grace: new(int64), ignoreMissing: true, quiet: true}
			o.in.Namespace = namespace
			if err := o.run(ctx, env); err != nil {
				t.Error(err)
			}
		})
		set, err := readManifests(env, []string{file})
		if err != nil {
			t.Fatal(err)
		}
		up := applyOptions{set: set, quiet: true}
		_ = up.run(t.Context(), env) // most of them fail
		lists, err := r.conn.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range lists.GetContainers() {
			switch c.GetLabels()["io.kubernetes.pod.namespace"] + "/" + c.GetLabels()["io.kubernetes.pod.name"] {
			case namespace + "/killed":
				_, err = r.conn.Runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.GetId()})
			case namespace + "/stopped":
				_, err = r.conn.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: c.GetPodSandboxId()})
			}
			if err != nil {
				t.Error(err)
			}
		}
		want := map[string]string{}
		for name, d := range deaths {
			want[name] = d.want
		}
		if strings.HasPrefix(endpoint, "unix:") { // which keeps no journal
			want["killed"] = "error ended-by-signal"
		}
		var got map[string]string
		for deadline := time.Now().Add(time.Minute); ; { // ends reach a runtime's lists after the calls
			if got = verdicts(t, env, namespace); maps.Equal(got, want) || time.Now().After(deadline) {
				break
			}
			if err := cli.Pause(t.Context(), 200*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// verdicts asks why of each pod.
func verdicts(t *testing.T, env *cli.Env, namespace string) map[string]string {
	t.Helper()
	var out strings.Builder
	o := whyOptions{}
	o.in.Namespace = namespace
	o.view.Format.Kind = output.JSON
	before := env.Out
	env.Out = &out
	err := o.run(t.Context(), env)
	env.Out = before
	var report diagnose.Report
	if err == nil {
		err = json.Unmarshal([]byte(out.String()), &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name := range deaths {
		got[name] = ""
	}
	for _, f := range report.Findings {
		if f.Namespace == namespace {
			got[f.Pod] = strings.TrimSpace(got[f.Pod] + " " + string(f.Severity) + " " + string(f.Code))
		}
	}
	return got
}
