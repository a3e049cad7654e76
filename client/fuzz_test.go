package client

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzParseEndpoint checks that a parsed endpoint round-trips through String.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{
		"/run/x.sock", "unix:///x", "tcp://h:1", "tcp://[::1]:2", "ssh://a@b:22/c", "docker://", "docker:///d", "docker+tcp://h:1",
		"docker+ssh://h", "x", "", "::", "docker+", "unix:", "ssh://%41@h/x", "ssh://h/a%20b",
		"ssh://h/%00", "ssh://h/%2520", "ssh://%25@h/x", "ssh://[fe80::1%25eth0]/x", "ssh://h/.", "ssh://h/a/..", "docker+ssh://h/.", "ssh:[::%25\xff]/0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			return
		}
		again, err := ParseEndpoint(e.String())
		if err != nil || again != e {
			t.Errorf("%q is %+v, but %q is %+v, %v", s, e, e, again, err)
		}
	})
}

// FuzzParseSelector checks that a selector never panics and matches the labels of its own equalities.
func FuzzParseSelector(f *testing.F) {
	for _, s := range []string{"a=b", "a==b", "a!=b", "a in (b,c)", "a notin (b)", "a", "!a", `a=b\,c`, "a=b,c", "a=(", "in in (in)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sel, err := ParseSelector(s)
		if err != nil {
			return
		}
		sel.Matches(nil)
		if eq := sel.Equalities(); len(eq) == len(sel) && !sel.Matches(eq) {
			t.Errorf("%q does not match %v", s, eq)
		}
	})
}

// FuzzNames checks that no reference panics and that a result matches its reference.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "a/b", "n/a/b", "@last", "12", "", "//", "a/b/c/d"} {
		f.Add(s, "a", "b", "1234", true)
	}
	f.Fuzz(func(t *testing.T, ref, pod, ctr, id string, running bool) {
		if checkRef(containerKind, ref) != nil {
			return
		}
		s := &snapshot{now: time.Unix(0, 0)}
		s.setPods([]*runtimeapi.PodSandbox{nil, {Id: "p", Metadata: &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: "n"}}})
		list := []*runtimeapi.Container{nil, {Id: id, PodSandboxId: "p", Metadata: &runtimeapi.ContainerMetadata{Name: ctr}}}
		if running {
			list[1].State = runtimeapi.ContainerState_CONTAINER_RUNNING
		}
		s.setContainers(list)
		got, err := s.find(containerKind, Query{Ref: ref, Want: RunningAttempt})
		if err != nil {
			return
		}
		if !strings.HasPrefix(got.id, ref) && got.name != ref && got.podName != ref && !strings.HasSuffix("n/"+pod+"/"+ctr, ref) && "n/"+pod != ref && ref != LastRef {
			t.Errorf("%q found %+v", ref, got)
		}
	})
}

// FuzzParseConfig checks that a parsed config can be changed, written and parsed again.
func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"", "debug: true", "{timeout: 3}", "debug:\n  true\n", "# x\n\ndebug: 'true' # y\n", "? debug\n: true\n", "---\ndebug: true\n...\n", "\"debug\": true", "debug: !!str true", "debug: &a true", "&000,0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseConfig("x", []byte(s))
		if err != nil {
			return
		}
		for _, v := range []string{"true", "false"} {
			if err := c.Set("debug", v); err != nil {
				t.Fatal(err)
			}
			text, err := c.text()
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseConfig("x", text)
			if err != nil || again.Debug != (v == "true") {
				t.Errorf("%q became %q: %v", s, text, err)
			}
		}
	})
}
