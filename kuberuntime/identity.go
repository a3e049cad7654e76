package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// identity distinguishes the runtimes of one host. Two containerds have the same name, and docker:// and the socket of
// serve are endpoints of the same engine.
type identity struct {
	key  string
	root string // the runtime's data root; "" if unknown
	at   string // result of socketOf: the socket's path, resolved if it exists, or an endpoint that is not a path
	// bridge reports whether the runtime's pods are on the engine's bridge.
	bridge bool
	config string // the runtime's configuration as JSON
}

// identify asks the runtime once. An engine is identified by its ID and its data root: two engines that share
// /etc/docker share the ID. Other runtimes are identified by the path of their socket, because the socket's inode
// changes with each start.
func (m *Manager) identify(ctx context.Context) (identity, error) {
	m.mu.Lock()
	known := m.identity
	m.mu.Unlock()
	if known.key != "" {
		return known, nil
	}
	resp, err := m.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return identity{}, fmt.Errorf("identify the runtime: %w", err)
	}
	for _, c := range resp.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.RuntimeReady && !c.GetStatus() && len(resp.GetInfo()) == 0 {
			return identity{}, fmt.Errorf("identify the runtime: %w", notReady(resp.GetStatus(), runtimeapi.RuntimeReady))
		}
	}
	var config struct {
		EngineID      string `json:"engineID"` // reported by crishim's shim
		DockerRootDir string `json:"dockerRootDir"`
		NetworkPlugin string `json:"networkPlugin"`
		RootDir       string `json:"rootDir"` // reported by containerd
	}
	// Another runtime's configuration may have another format.
	_ = json.Unmarshal([]byte(resp.GetInfo()["config"]), &config)
	socket := socketOf(m.o.Endpoint)
	found := identity{key: socket, at: socket, root: cmp.Or(config.DockerRootDir, config.RootDir), bridge: config.NetworkPlugin == "bridge", config: resp.GetInfo()["config"]}
	if config.EngineID != "" {
		found.key = "docker " + config.EngineID + " " + config.DockerRootDir
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity = found
	return found, nil
}

// socketOf returns the path of an endpoint's socket with symbolic links resolved, or the endpoint if it is not a path.
func socketOf(endpoint string) string {
	_, path, ok := strings.Cut(endpoint, "://")
	if !ok {
		path = endpoint
	}
	if !filepath.IsAbs(path) {
		return endpoint
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// is reports whether a record belongs to this runtime: the keys are equal, or the data root and the socket are equal, or
// the keys are paths of the same socket. A reinstalled engine has a new ID, but the same data root and socket. A mount
// can give one socket two paths.
func (i identity) is(key string, r runtimeRecord) bool {
	if i.key == key || i.root != "" && r.Root == i.root && socketOf(r.Endpoint) == i.at {
		return true
	}
	a, err := os.Stat(i.key)
	if err != nil {
		return false
	}
	b, err := os.Stat(key)
	return err == nil && os.SameFile(a, b)
}
