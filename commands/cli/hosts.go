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

// The flags about several nodes.
const (
	flagHosts       = "hosts"
	flagHostsFile   = "hosts-file"
	flagParallel    = "parallel"
	flagNodeTimeout = "node-timeout"
	flagYes         = "yes"
)

// namedEndpoint is an endpoint with its name in results.
type namedEndpoint struct{ name, endpoint string }

// readHosts returns the endpoints of --hosts and --hosts-file.
func readHosts(hosts []string, file, home string) (all []namedEndpoint, err error) {
	named := slices.Clone(hosts)
	if file != "" {
		text, err := bounded.ReadFile(file, bounded.Config)
		if err != nil {
			return nil, BadInput(fmt.Errorf("--%s: %w", flagHostsFile, err))
		}
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			named = append(named, strings.Fields(string(line))...)
		}
	}
	if len(named) == 0 {
		return nil, BadInput(fmt.Errorf("%s names no host", file))
	}
	for name := range strings.SplitSeq(strings.Join(named, ","), ",") {
		matching := []string{name}
		if strings.ContainsAny(name, "*?") {
			if matching, err = sshHosts(home, name); err != nil {
				return nil, err
			}
		}
		for _, name := range matching {
			host, err := parseHost(name)
			if err != nil {
				return nil, err
			}
			all = append(all, host)
		}
	}
	return all, nil
}

func parseHost(name string) (namedEndpoint, error) {
	host := namedEndpoint{name, name}
	if !strings.Contains(name, "://") && !strings.HasPrefix(name, "/") {
		host.endpoint = "ssh://" + name
	}
	_, err := client.ParseEndpoint(host.endpoint)
	var syntax *client.SyntaxError
	switch {
	case name == "":
		return host, Usagef("--%s: a host is empty", flagHosts)
	case errors.As(err, &syntax):
		return host, Invalid(flagHosts, name, syntax.Reason)
	}
	return host, nil
}

// sshHosts returns the names in ~/.ssh/config that match a pattern; "" matches all.
func sshHosts(home, pattern string) ([]string, error) {
	file := filepath.Join(home, ".ssh", "config")
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
