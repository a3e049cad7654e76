package stream

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Port is one forwarded port. Without an Address the Options decide; Local 0
// means any free port.
type Port struct {
	Address       string
	Local, Remote uint16
}

// String is the form that ParsePort reads.
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

// ParsePort reads PORT, LOCAL:REMOTE, :REMOTE and ADDRESS:LOCAL:REMOTE. An
// IPv6 address stands in brackets; an empty or zero LOCAL means any free port.
func ParsePort(s string) (Port, error) {
	address, rest, err := cutAddress(s)
	if err != nil {
		return Port{}, err
	}
	local, remote, two := strings.Cut(rest, ":")
	if !two {
		if address != "" {
			return Port{}, fmt.Errorf("port %q: want ADDRESS:LOCAL:REMOTE", s)
		}
		remote = local
	}
	p := Port{Address: address}
	if p.Remote, err = portNumber(remote); err != nil || p.Remote == 0 {
		return Port{}, fmt.Errorf("port %q: remote port %q is not a number from 1 to 65535", s, remote)
	}
	if local == "" {
		return p, nil
	}
	if p.Local, err = portNumber(local); err != nil {
		return Port{}, fmt.Errorf("port %q: local port %q is not a number from 0 to 65535", s, local)
	}
	return p, nil
}

// cutAddress splits off an address in front of two ports.
func cutAddress(s string) (address, rest string, err error) {
	if strings.HasPrefix(s, "[") {
		address, rest, ok := strings.Cut(s[1:], "]:")
		if !ok || net.ParseIP(address) == nil {
			return "", "", fmt.Errorf("port %q: want [IPV6]:LOCAL:REMOTE", s)
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
		return address, rest, nil
	}
	return "", "", fmt.Errorf("port %q: want [ADDRESS:]LOCAL:REMOTE, with an IPv6 address in brackets", s)
}

func portNumber(s string) (uint16, error) {
	if strings.HasPrefix(s, "+") {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
