package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

const (
	loopback4 = "127.0.0.1"
	loopback6 = "::1"
	// freePortTries bounds the search for a port that is free in both
	// families.
	freePortTries = 20
)

// bound is a listener and the port behind it.
type bound struct {
	net.Listener
	port Port
}

// listenAll binds every port, or none and says why.
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
		_ = b.Close() // nothing is lost with a listener
	}
}

// listenPort binds one port on all its addresses. A free port is sought until
// one number is free on all of them.
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

// expandLoopback makes both loopback addresses of nothing and of "localhost".
// The second result says that the IPv6 one was not asked for by name.
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
		if err != nil && address == loopback6 && optional6 && len(all) > 0 && noSuchFamily(err) {
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

// familyOf keeps an address to its own family: on "tcp" 0.0.0.0 would accept IPv6
// too, which nobody asked for, and leave no room for ::.
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

// noSuchFamily says that the host cannot bind the address at all.
func noSuchFamily(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

func listenError(p Port, address string, err error) error {
	at := net.JoinHostPort(address, strconv.Itoa(int(p.Local)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("local port %s is taken: %w", at, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("local port %s: %w", at, syscall.EACCES)
	}
	return fmt.Errorf("listen for port %s: %w", p, err)
}
