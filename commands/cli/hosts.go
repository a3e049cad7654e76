package cli

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/bounded"
)

// readEndpoints reads the endpoints of -r, --hosts and --hosts-file.
func (env *Env) readEndpoints(hosts bool) error {
	g := &env.global
	named := slices.Clone(g.hosts)
	if g.hostsFile != "" {
		text, err := bounded.ReadFile(g.hostsFile, bounded.Config)
		if err != nil {
			return BadInput(fmt.Errorf("--%s: %w", flagHostsFile, err))
		}
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			named = append(named, strings.Fields(string(line))...)
		}
	}
	if hosts && len(named) == 0 {
		return BadInput(fmt.Errorf("%s names no host", g.hostsFile))
	}
	for _, name := range g.runtimeEndpoints {
		if _, err := client.ParseEndpoint(name); err != nil {
			return err
		}
		env.addNode(namedEndpoint{name, name})
	}
	if !hosts {
		return nil
	}
	for name := range strings.SplitSeq(strings.Join(named, ","), ",") {
		if err := env.addHosts(name); err != nil {
			return err
		}
	}
	return nil
}

// addNode adds an endpoint unless it is there.
func (env *Env) addNode(n namedEndpoint) {
	if !slices.ContainsFunc(env.several.nodes, func(other namedEndpoint) bool { return other.endpoint == n.endpoint }) {
		env.several.nodes = append(env.several.nodes, n)
	}
}

// addHosts adds a host, or those that match a pattern.
func (env *Env) addHosts(name string) (err error) {
	matching := []string{name}
	if strings.ContainsAny(name, "*?") {
		if matching, err = env.sshHosts(name); err != nil {
			return err
		}
	}
	for _, name := range matching {
		n := namedEndpoint{name, name}
		if !strings.Contains(name, "://") && !strings.HasPrefix(name, "/") {
			n.endpoint = "ssh://" + name
		}
		_, err := client.ParseEndpoint(n.endpoint)
		var syntax *client.SyntaxError
		switch {
		case name == "":
			return Usagef("--%s: a host is empty", flagHosts)
		case errors.As(err, &syntax):
			return Invalid(flagHosts, name, syntax.Reason)
		}
		env.addNode(n)
	}
	return nil
}

// sshHosts returns the names in ~/.ssh/config that match a pattern; "" matches all.
func (env *Env) sshHosts(pattern string) ([]string, error) {
	file := filepath.Join(env.getenv("HOME"), ".ssh", "config")
	text, err := bounded.ReadFile(file, bounded.Config)
	if err != nil {
		return nil, BadInput(fmt.Errorf("--%s %s: %w", flagHosts, pattern, err))
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.Replace(line, "=", " ", 1))
		if len(words) == 0 || !strings.EqualFold(words[0], "host") {
			continue
		}
		for _, name := range words[1:] {
			matches, err := path.Match(pattern, name)
			if err != nil {
				return nil, Invalid(flagHosts, pattern, "must be a name, or a pattern of names with * and ?")
			}
			if (matches || pattern == "") && !strings.ContainsAny(name, "*?!") {
				names = append(names, name)
			}
		}
	}
	if names == nil {
		return nil, Usagef("--%s: no name in %s matches %s", flagHosts, file, Quote(pattern))
	}
	return names, nil
}
