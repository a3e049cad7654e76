package docker

import (
	"os"
	"path/filepath"
)

// env is the part of the user's environment that leads to an engine.
type env struct {
	lookup func(string) (string, bool)
	home   string
}

func environment(o Options) env {
	e := env{lookup: o.LookupEnv, home: o.Home}
	if e.lookup == nil {
		e.lookup = os.LookupEnv
	}
	if e.home == "" {
		e.home = e.get("HOME")
	}
	return e
}

func (e env) get(key string) string {
	v, _ := e.lookup(key)
	return v
}

func (e env) configDir() string {
	if dir := e.get("DOCKER_CONFIG"); dir != "" {
		return dir
	}
	return filepath.Join(e.home, ".docker")
}

// tls reads the variables that the docker command reads: DOCKER_TLS_VERIFY
// turns TLS and verification on, DOCKER_CERT_PATH alone turns on TLS.
func (e env) tls() *TLS {
	dir, verify := e.get("DOCKER_CERT_PATH"), e.get("DOCKER_TLS_VERIFY") != ""
	if dir == "" && !verify {
		return nil
	}
	if dir == "" {
		dir = e.configDir()
	}
	return &TLS{
		CA:         filepath.Join(dir, "ca.pem"),
		Cert:       filepath.Join(dir, "cert.pem"),
		Key:        filepath.Join(dir, "key.pem"),
		SkipVerify: !verify,
	}
}
