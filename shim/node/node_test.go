package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/network"
)

type aboutEngine struct {
	version func() (types.Version, error)
	info    system.Info
}

func (e aboutEngine) ServerVersion(context.Context) (types.Version, error) { return e.version() }
func (e aboutEngine) Ping(context.Context) (types.Ping, error) {
	version, err := e.version()
	return types.Ping{APIVersion: version.APIVersion}, err
}
func (e aboutEngine) Info(context.Context) (system.Info, error) { return e.info, nil }

func newTest(engine Engine) *Service {
	return New(Options{Engine: engine, Networks: Networks{Plugins: network.Plugins{Default: network.Bridge{}}}})
}

func TestStatusTellsWhyTheEngineIsNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		version func() (types.Version, error)
		want    string
	}{
		"it does not answer": {func() (types.Version, error) { return types.Version{}, errors.New("no such engine") }, "no such engine"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTest(aboutEngine{version: c.version})
			resp, err := n.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, condition := range resp.GetStatus().GetConditions() {
				if condition.GetStatus() || !strings.Contains(condition.GetMessage(), c.want) || condition.GetReason() == "" {
					t.Errorf("got %v, want %q", condition, c.want)
				}
			}
		})
	}
}

func TestStatusListsHandlers(t *testing.T) {
	engine := aboutEngine{info: system.Info{
		Runtimes: map[string]system.RuntimeWithStatus{
			"runc": {Status: map[string]string{"org.opencontainers.runtime-spec.features": `{"mountOptions":["ro","rro"]}`}}, "crun": {},
		},
		DefaultRuntime: "runc", CgroupDriver: "cgroupfs",
	}, version: func() (types.Version, error) { return types.Version{APIVersion: "1.45"}, nil }}
	check := func(want string) {
		t.Helper()
		resp, err := newTest(engine).Status(t.Context(), &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range resp.GetRuntimeHandlers() {
			got = append(got, fmt.Sprint(h.GetName(), "=", h.GetFeatures().GetRecursiveReadOnlyMounts()))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check("=true crun=false runc=true")
	engine.info.SecurityOptions = []string{"name=selinux"}
	check("=false crun=false runc=false")
}

func TestRuntimeConfigNeverGuesses(t *testing.T) {
	for driver, want := range map[string]error{"systemd": nil, "cgroupfs": nil, "none": errdefs.ErrFailedPrecondition} {
		n := newTest(aboutEngine{info: system.Info{CgroupDriver: driver}})
		resp, err := n.RuntimeConfig(t.Context(), &runtimeapi.RuntimeConfigRequest{})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", driver, err, want)
		}
		if err == nil && !strings.EqualFold(resp.GetLinux().GetCgroupDriver().String(), driver) {
			t.Errorf("got %s, want %s", resp.GetLinux().GetCgroupDriver(), driver)
		}
	}
}

func TestUpdateRuntimeConfig(t *testing.T) {
	n := newTest(nil)
	for cidr, valid := range map[string]bool{
		"": true, "10.0.0.0/24": true, "10.0.0.0/24,fd00::/64": true, " fd00::/64 , 10.0.0.0/24": true,
		"10.0.0.0": false, "10.0.0.5/24": false, "10.0.0.0/24,": false,
	} {
		_, err := n.UpdateRuntimeConfig(t.Context(), &runtimeapi.UpdateRuntimeConfigRequest{
			RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}},
		})
		if valid && err != nil || !valid && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, valid: %v", cidr, err, valid)
		}
	}
	if _, err := n.UpdateRuntimeConfig(t.Context(), &runtimeapi.UpdateRuntimeConfigRequest{}); err != nil {
		t.Errorf("an empty request: got %v", err)
	}
}

// silentEngine accepts requests and never answers.
type silentEngine struct{}

func (silentEngine) ServerVersion(ctx context.Context) (types.Version, error) {
	<-ctx.Done()
	return types.Version{}, ctx.Err()
}

func (silentEngine) Ping(ctx context.Context) (types.Ping, error) {
	<-ctx.Done()
	return types.Ping{}, ctx.Err()
}

func (silentEngine) Info(ctx context.Context) (system.Info, error) {
	<-ctx.Done()
	return system.Info{}, ctx.Err()
}

// TestADaemonAnswersWithoutItsEngine checks Version, which clients call first.
func TestADaemonAnswersWithoutItsEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := aboutEngine{version: func() (types.Version, error) { return types.Version{}, errors.New("no such engine") }}
		for name, c := range map[string]struct {
			engine Engine
			want   string
		}{
			"it is gone":          {gone, "no such engine"},
			"it does not answer":  {silentEngine{}, "the docker engine does not answer"},
			"it may not be asked": {aboutEngine{version: func() (types.Version, error) { return types.Version{}, errdefs.ErrPermissionDenied }}, "permission denied"},
		} {
			n := newTest(c.engine)
			n.Daemon = true
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			v, err := n.Version(ctx, &runtimeapi.VersionRequest{})
			if err != nil || v.GetVersion() != "0.1.0" || v.GetRuntimeName() != "docker" || v.GetRuntimeVersion() != "unknown" || v.GetRuntimeApiVersion() != "v1" {
				t.Errorf("%s: version: got %v, %v", name, v, err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s, err := n.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
			if err != nil {
				t.Errorf("%s: status: %v", name, err)
			}
			for _, condition := range s.GetStatus().GetConditions() {
				if condition.GetStatus() || condition.GetMessage() != c.want || condition.GetReason() != "DockerDaemonNotReady" {
					t.Errorf("%s: got %v, want %q", name, condition, c.want)
				}
			}
		}
		if v, err := newTest(gone).Version(t.Context(), &runtimeapi.VersionRequest{}); err == nil {
			t.Errorf("a shim for one command: got %v, want an error", v)
		}
	})
}

// A kubelet asks for the cgroup driver first. The required driver is known without the engine.
func TestRuntimeConfigWithoutTheEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTest(silentEngine{})
		n.Daemon, n.CgroupDriver = true, "cgroupfs"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := n.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		if err != nil || r.GetLinux().GetCgroupDriver() != runtimeapi.CgroupDriver_CGROUPFS {
			t.Errorf("got %v, %v, want cgroupfs", r, err)
		}
		n.CgroupDriver = ""
		if r, err := n.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{}); err == nil {
			t.Errorf("with no driver known: got %v", r)
		}
	})
}
