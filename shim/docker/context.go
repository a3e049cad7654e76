package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// defaultContext is the docker command's name for "no context".
const defaultContext = "default"

// currentContext is the name of the docker context in force, "" for none.
func (e env) currentContext() (string, error) {
	if name := e.get("DOCKER_CONTEXT"); name != "" {
		return named(name), nil
	}
	path := filepath.Join(e.configDir(), "config.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("docker configuration: %w", err)
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return "", fmt.Errorf("docker configuration %s: %w", path, err)
	}
	return named(config.CurrentContext), nil
}

func named(name string) string {
	if name == defaultContext {
		return ""
	}
	return name
}

// contextEndpoint reads a docker context from the docker command's store.
func (e env) contextEndpoint(name string) (Endpoint, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	path := filepath.Join(e.configDir(), "contexts", "meta", id, "meta.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return Endpoint{}, fmt.Errorf("docker context %q: %w", name, err)
	}
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return Endpoint{}, fmt.Errorf("docker context %q: %s: %w", name, path, err)
	}
	docker, ok := meta.Endpoints["docker"]
	if !ok || docker.Host == "" {
		return Endpoint{}, fmt.Errorf("docker context %q names no docker endpoint", name)
	}
	files := filepath.Join(e.configDir(), "contexts", "tls", id, "docker")
	return Endpoint{Host: docker.Host, Source: "docker context " + name, TLS: contextTLS(files, docker.SkipTLSVerify)}, nil
}

func contextTLS(dir string, skipVerify bool) *TLS {
	existing := func(name string) string {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	t := TLS{CA: existing("ca.pem"), Cert: existing("cert.pem"), Key: existing("key.pem"), SkipVerify: skipVerify}
	if t.CA == "" && t.Cert == "" && !skipVerify {
		return nil
	}
	return &t
}
