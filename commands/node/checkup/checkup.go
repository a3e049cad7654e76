// Package checkup implements the checks of `crishim doctor`. They read the status of the runtime and the files of its
// host, and change nothing on the node. [Runtime] runs the checks.
package checkup

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/output"
)

// Host is the machine of the runtime.
type Host struct {
	// Root is a prefix of every path, for tests.
	Root string
	// Hidden means that the files of the host are not visible, as in a pod.
	Hidden bool
	// Dial connects to a streaming server; nil means a direct connection.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Measure measures a filesystem; nil means statfs.
	Measure func(path string) (diagnose.Filesystem, error)
}

func (h Host) path(p string) string { return filepath.Join(h.Root, p) }

func (h Host) dial(ctx context.Context, address string) error {
	dial := h.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (h Host) measure(path string) (diagnose.Filesystem, error) {
	if h.Measure != nil {
		return h.Measure(path)
	}
	return diagnose.Measure(path)
}

// checker checks one runtime.
type checker struct {
	conn *client.Conn
	host Host
	// local reports whether the runtime runs on this host and the files of the host are visible.
	local bool
	// config is the runtime's configuration, if its status has it.
	config runtimeConfig
	// loaded are the CNI networks of containerd's status; nil for other runtimes.
	loaded *loadedCNI
}

// runtimeConfig has the fields of the verbose status that the checks use. containerd and crishim's dockershim report CNI,
// and only the dockershim reports the other fields.
type runtimeConfig struct {
	CNI struct {
		BinDir  string   `json:"binDir"`
		BinDirs []string `json:"binDirs"`
		ConfDir string   `json:"confDir"`
	} `json:"cni"`
	LiveRestore   *bool  `json:"liveRestore"`
	NetworkPlugin string `json:"networkPlugin"`
}

// loadedCNI is the part of containerd's verbose status that describes the loaded CNI networks.
type loadedCNI struct {
	Dir      string   `json:"PluginConfDir"`
	BinDirs  []string `json:"PluginDirs"`
	Networks []struct {
		Interface string `json:"IFName"`
		Config    struct {
			Name    string
			Plugins []struct {
				Network struct {
					Type string `json:"type"`
					IPAM struct {
						Type string `json:"type"`
					} `json:"ipam"`
				}
			}
		}
	}
	// Status is "OK", or the error of containerd's last attempt to load the CNI configuration.
	Status string `json:"-"`
}

// Runtime checks the runtime of a connection.
func Runtime(ctx context.Context, conn *client.Conn, host Host) []output.Finding {
	p := &checker{conn: conn, host: host}
	e, err := client.ParseEndpoint(conn.RuntimeEndpoint)
	p.local = err == nil && !host.Hidden && (e.Network == "unix" || e.Network == "")
	findings := p.version()
	findings = append(findings, p.conditions(ctx)...)
	findings = append(findings, p.cni()...)
	findings = append(findings, p.cgroupDriver(ctx), p.imageFilesystem(ctx), p.streaming(ctx))
	return append(findings, p.liveRestore()...)
}

func (c *checker) version() []output.Finding {
	v := c.conn.Version
	out := []output.Finding{ok("runtime", strings.TrimSpace(v.GetRuntimeName()+" "+v.GetRuntimeVersion())+" at "+c.conn.RuntimeEndpoint)}
	if c.conn.API() == "v1" {
		return append(out, ok("CRI version", "v1"))
	}
	return append(out, warn("CRI version", "the runtime only knows "+c.conn.API(),
		"kubelets from Kubernetes 1.26 on refuse it; update the runtime"))
}

// conditions returns a finding for each condition in the runtime's status. It also stores the configuration from the
// verbose status for the other checks.
func (c *checker) conditions(ctx context.Context) []output.Finding {
	r, err := c.conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return []output.Finding{failed("status", err.Error(), "")}
	}
	// The configuration is optional, and each runtime has its own form.
	_ = json.Unmarshal([]byte(r.GetInfo()["config"]), &c.config)
	var loaded loadedCNI
	if json.Unmarshal([]byte(r.GetInfo()["cniconfig"]), &loaded) == nil && loaded.Dir != "" {
		_ = json.Unmarshal([]byte(r.GetInfo()["lastCNILoadStatus"]), &loaded.Status)
		c.loaded = &loaded
	}
	var out []output.Finding
	for _, condition := range r.GetStatus().GetConditions() {
		out = append(out, c.condition(condition))
	}
	return out
}

func (c *checker) condition(rc *runtimeapi.RuntimeCondition) output.Finding {
	if rc.GetStatus() {
		return ok(rc.GetType(), "the runtime says so")
	}
	detail := joined(": ", rc.GetReason(), rc.GetMessage())
	if detail == "" {
		detail = "the runtime gives no reason"
	}
	switch rc.GetType() {
	case runtimeapi.RuntimeReady:
		return failed(rc.GetType(), detail, "see the runtime's own log: journalctl -u containerd, crio or docker")
	case runtimeapi.NetworkReady:
		return failed(rc.GetType(), detail, "install a CNI configuration in "+c.confDir()+"; pods with host networking work without")
	}
	return warn(rc.GetType(), detail, "")
}

// liveRestore checks Docker's live-restore. Without it a restart of the engine ends every container.
func (c *checker) liveRestore() []output.Finding {
	if c.config.LiveRestore == nil {
		return nil
	}
	if *c.config.LiveRestore {
		return []output.Finding{ok("live restore", "containers outlive a restart of the engine")}
	}
	return []output.Finding{warn("live restore", "a restart of the engine ends all containers",
		`set "live-restore": true in /etc/docker/daemon.json and reload the engine`)}
}

// joined joins the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

func ok(check, detail string) output.Finding {
	return output.Finding{State: output.FindingOK, Check: check, Detail: detail}
}

func warn(check, detail, hint string) output.Finding {
	return output.Finding{State: output.FindingWarning, Check: check, Detail: detail, Hint: hint}
}

func failed(check, detail, hint string) output.Finding {
	return output.Finding{State: output.FindingFailed, Check: check, Detail: detail, Hint: hint}
}

func skipped(check, detail string) output.Finding {
	return output.Finding{State: output.FindingSkipped, Check: check, Detail: detail}
}

// Endpoints turns the candidates of client.Discover into findings. It skips missing and untried endpoints unless Chosen
// is set: a node usually has one runtime.
func Endpoints(attempts []client.Candidate) []output.Finding {
	var out []output.Finding
	for _, a := range attempts {
		check := "endpoint " + a.Endpoint
		switch a.State {
		case client.StateAbsent, client.StateNotTried:
			if a.Chosen {
				out = append(out, failed(check, a.Detail, a.Hint()))
			}
		case client.StateReady:
			detail := a.Detail
			if a.Chosen {
				detail += ", the one that is used"
			}
			out = append(out, ok(check, detail))
		case client.StateDockersOwn, client.StateNoCRI:
			out = append(out, ok(check, joined(": ", a.Name, a.Detail)))
		default:
			out = append(out, warn(check, joined(": ", a.Name, joined(", ", a.State, a.Detail)), a.Hint()))
		}
	}
	return out
}
