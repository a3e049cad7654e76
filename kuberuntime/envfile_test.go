package kuberuntime

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpReadsEnvFiles: a container gets a variable from a file that an init container has written.
func TestUpReadsEnvFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a key":    {"TOKEN='abc'\n", "abc"},
		"no key":   {"OTHER='abc'\n", "container a: CreateContainerConfigError: variable T: file out/env of volume v: no key TOKEN"},
		"no file":  {"", "variable T: file out/env of volume v: no such file or directory"},
		"nonsense": {"TOKEN=abc\n", "line 1 has a value without single quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p, set := parse(t, `
  initContainers: [{name: i, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v}]}]
  containers: [{name: a, image: "busybox:1", env: [{name: T, valueFrom: {fileKeyRef: {volumeName: v, path: out/env, key: TOKEN}}}]}]
  volumes: [{name: v, emptyDir: {}}]
`)
			ctx := deadline(t)
			done := make(chan error, 1)
			go func() {
				_, err := f.Up(ctx, p, set, false)
				done <- err
			}()
			id := waitRunning(ctx, t, f, p, "i")
			if c.text != "" {
				dir := filepath.Join(f.o.Dirs.Volume("u1", "empty-dir", "v"), "out")
				if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "env"), []byte(c.text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			f.stub.Exit(id, 0)
			got := ""
			if err := <-done; err != nil {
				got = err.Error()
			} else {
				for _, e := range f.created()[1].GetEnvs() {
					got += string(e.GetValue())
				}
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestUpOfAnUnsetVariableInASubPath: $(NAME) of an unset variable never becomes the name of a directory.
func TestUpOfAnUnsetVariableInASubPath(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  restartPolicy: Never
  containers: [{name: a, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v, subPathExpr: data/$(NAME)}]}]
  volumes: [{name: v, emptyDir: {}}]
`)
	_, err := f.Up(deadline(t), p, set, false)
	if err == nil || !strings.Contains(err.Error(), "container a: CreateContainerConfigError: mount /v: subPathExpr") {
		t.Errorf("got %v", err)
	}
	made, err := os.ReadDir(f.o.Dirs.Volume("u1", "empty-dir", "v"))
	if err != nil || len(made) > 0 {
		t.Errorf("in the volume: %v, %v", made, err)
	}
}
