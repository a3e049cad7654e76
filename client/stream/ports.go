package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

const (
	loopback4     = "127.0.0.1"
	loopback6     = "::1"
	freePortTries = 20 // attempts to find a port that is free in both address families
)

type bound struct {
	net.Listener
	port Port
}

// listenAll binds all ports, or none on an error.
func listenAll(ctx context.Context, ports []Port, o Options) ([]bound, error) {
	var all []bound
	for _, p := range ports {
		ls, err := listenPort(ctx, p, o)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, ls...)
	}
	return all, nil
}

func closeAll(all []bound) {
	for _, b := range all {
		_ = b.Close() // Close of a listener loses no data
	}
}

// listenPort binds one port on all its addresses. A port chosen by the system must be free on all of them.
func listenPort(ctx context.Context, p Port, o Options) ([]bound, error) {
	addresses := o.Addresses
	if p.Address != "" {
		addresses = []string{p.Address}
	}
	addresses, both := expandLoopback(addresses)
	for try := 1; ; try++ {
		all, err := listenOnce(ctx, p, addresses, both, o)
		if p.Local != 0 || try == freePortTries || !errors.Is(err, syscall.EADDRINUSE) {
			return all, err
		}
	}
}

// expandLoopback returns both loopback addresses for an empty list and for "localhost". The second result is true if
// the IPv6 address was implied and may be missing.
func expandLoopback(addresses []string) ([]string, bool) {
	if len(addresses) == 0 {
		return []string{loopback4, loopback6}, true
	}
	var out []string
	implied := false
	for _, a := range addresses {
		if a == "localhost" {
			out = append(out, loopback4, loopback6)
			implied = true
			continue
		}
		out = append(out, a)
	}
	return out, implied
}

func listenOnce(ctx context.Context, p Port, addresses []string, optional6 bool, o Options) ([]bound, error) {
	var all []bound
	for _, address := range addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, familyOf(address), net.JoinHostPort(address, strconv.Itoa(int(p.Local))))
		if err != nil && address == loopback6 && optional6 && len(all) > 0 &&
			(errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) { // the host has no IPv6
			o.warn("port %d is not forwarded on [::1]: this host has no IPv6 loopback", p.Local)
			continue
		}
		if err != nil {
			closeAll(all)
			return nil, listenError(p, address, err)
		}
		if p.Local == 0 {
			p.Local = uint16(l.Addr().(*net.TCPAddr).Port)
		}
		all = append(all, bound{Listener: l, port: p})
	}
	return all, nil
}

// familyOf returns the network for an address. On "tcp", 0.0.0.0 would accept IPv6 too and conflict with ::.
func familyOf(address string) string {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return "tcp"
	case ip.Is4():
		return "tcp4"
	}
	return "tcp6"
}

// PortTakenError is a local port that is in use, by another process or by another Port of the same call.
type PortTakenError struct {
	Port Port
	at   string
}

func (e *PortTakenError) Error() string { return fmt.Sprintf("local port %s is taken", e.at) }

func (*PortTakenError) Unwrap() error { return syscall.EADDRINUSE }

func listenError(p Port, address string, err error) error {
	at := net.JoinHostPort(address, strconv.Itoa(int(p.Local)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &PortTakenError{p, at}
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("local port %s: %w", at, syscall.EACCES)
	}
	return fmt.Errorf("listen for port %s: %w", p, err)
}

// Port is one forwarded port. An empty Address means Options.Addresses; Local 0 means any free port.
type Port struct {
	Address       string
	Local, Remote uint16
}

// String returns the form that ParsePort parses.
func (p Port) String() string {
	s := fmt.Sprintf("%d:%d", p.Local, p.Remote)
	switch {
	case p.Address == "":
		return s
	case strings.Contains(p.Address, ":"):
		return "[" + p.Address + "]:" + s
	}
	return p.Address + ":" + s
}

// ParsePort parses PORT, LOCAL:REMOTE, :REMOTE and ADDRESS:LOCAL:REMOTE. An IPv6 address is in brackets; an empty or
// zero LOCAL means any free port.
func ParsePort(s string) (Port, error) {
	address, rest, err := cutAddress(s)
	if err != nil {
		return Port{}, err
	}
	local, remote, two := strings.Cut(rest, ":")
	if !two {
		if address != "" {
			return Port{}, fmt.Errorf("invalid port %q: must be ADDRESS:LOCAL:REMOTE", s)
		}
		remote = local
	}
	p := Port{Address: address}
	if p.Remote, err = portNumber(remote); err != nil || p.Remote == 0 {
		return Port{}, fmt.Errorf("invalid port %q: the remote port is not a number from 1 to 65535", s)
	}
	if local == "" {
		return p, nil
	}
	if p.Local, err = portNumber(local); err != nil {
		return Port{}, fmt.Errorf("invalid port %q: the local port is not a number from 0 to 65535", s)
	}
	return p, nil
}

func cutAddress(s string) (address, rest string, err error) {
	if strings.HasPrefix(s, "[") {
		address, rest, ok := strings.Cut(s[1:], "]:")
		if !ok || net.ParseIP(address) == nil {
			return "", "", fmt.Errorf("invalid port %q: must be [IPV6]:LOCAL:REMOTE", s)
		}
		return address, rest, nil
	}
	switch strings.Count(s, ":") {
	case 0, 1:
		return "", s, nil
	case 2:
		address, rest, _ = strings.Cut(s, ":")
		if address == "" {
			return "", "", fmt.Errorf("port %q: the address is empty", s)
		}
		if _, err := strconv.Atoi(address); err == nil {
			return "", "", fmt.Errorf("invalid port %q: must be [ADDRESS:]LOCAL:REMOTE, and %s is no address", s, address)
		}
		return address, rest, nil
	}
	return "", "", fmt.Errorf("invalid port %q: must be [ADDRESS:]LOCAL:REMOTE, with an IPv6 address in brackets", s)
}

func portNumber(s string) (uint16, error) {
	if strings.HasPrefix(s, "+") {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
