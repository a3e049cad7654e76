package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/bounded"
)

// With --hosts a command line runs on each of several hosts, and what they answer is shown as one
// result. A host is an endpoint, and its runner is this program in itself: Run once more, with
// -r ENDPOINT and in a mode in which views write parts for output.Merge.

// The flags that name hosts.
const (
	flagHosts     = "hosts"
	flagHostsFile = "hosts-file"
)

// host is one that --hosts names.
type host struct{ name, endpoint string }

// readHosts reads which hosts a command line is for.
func (env *Env) readHosts() error {
	g := &env.global
	if g.runtimeEndpoint != "" || g.imageEndpoint != "" {
		return Usagef("--%s names the endpoints: --runtime-endpoint and --image-endpoint do not go with it", flagHosts)
	}
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
	if len(named) == 0 {
		return BadInput(fmt.Errorf("%s names no host", g.hostsFile))
	}
	hosts, err := env.hostsNamed(strings.Split(strings.Join(named, ","), ","))
	if err != nil {
		return err
	}
	var names []string
	endpoints := map[string]string{}
	for _, h := range hosts {
		names, endpoints[h.name] = append(names, h.name), h.endpoint
	}
	env.Remote.Names = func(context.Context) ([]string, error) { return names, nil }
	env.Remote.Run = env.hostRunner(endpoints)
	return nil
}

// hostsNamed finds the endpoints of hosts, each once.
func (env *Env) hostsNamed(names []string) (hosts []host, err error) {
	for _, name := range names {
		matching := []string{name}
		if strings.ContainsAny(name, "*?") {
			if matching, err = env.sshHosts(name); err != nil {
				return nil, err
			}
		}
		for _, name := range matching {
			h := host{name, name}
			if name == "" || !strings.Contains(name, "://") && !strings.HasPrefix(name, "/") {
				h.endpoint = "ssh://" + name
			}
			_, err := client.ParseEndpoint(h.endpoint)
			var syntax *client.SyntaxError
			switch {
			case name == "":
				return nil, Usagef("--%s: a host is empty", flagHosts)
			case errors.As(err, &syntax):
				return nil, Invalid(flagHosts, name, syntax.Reason)
			}
			if !slices.ContainsFunc(hosts, func(other host) bool { return other.endpoint == h.endpoint }) {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts, nil
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

// hostRunner runs command lines of this program on hosts, each in an environment of its own.
func (env *Env) hostRunner(endpoints map[string]string) func(context.Context, string, Line, io.Writer, io.Writer) (int, error) {
	return func(ctx context.Context, node string, line Line, stdout, stderr io.Writer) (int, error) {
		own := *env
		own.In, own.Out, own.Err, own.Remote = strings.NewReader(""), stdout, stderr, nil
		own.InTerminal, own.OutTerminal, own.ErrTerminal, own.Width, own.Exit, own.AskPassword = false, false, false, nil, nil, nil
		endpoint, args := endpoints[node], line.Args
		args = slices.Concat([]string{"crishim", args[0], "--runtime-endpoint=" + endpoint, "--image-endpoint=" + endpoint}, args[1:])
		return Run(ctx, args, &own, env.newApp), nil
	}
}
