package shim

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/coreos/go-systemd/v22/activation"
)

// SystemdEndpoint is the endpoint that asks Listen for the socket that systemd passes to an activated service.
const SystemdEndpoint = "fd://"

// activated takes over the socket of systemd's socket activation. Its file
// belongs to systemd and stays. Processes that are started later do not see LISTEN_FDS.
func activated() (net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("listen on fd://: %w", err)
	}
	if len(passed) == 1 && passed[0] != nil {
		return passed[0], nil
	}
	for _, l := range passed {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	switch len(passed) {
	case 0:
		return nil, errors.New("listen on fd://: systemd passed no socket to this process")
	case 1:
		return nil, errors.New("listen on fd://: what systemd passed accepts no connections")
	}
	return nil, errors.Join(fmt.Errorf("listen on fd://: systemd passed %q sockets, need one", strconv.Itoa(len(passed))), err)
}
