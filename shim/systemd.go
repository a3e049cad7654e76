package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// SystemdEndpoint is the endpoint that asks Listen for the socket that systemd passes to an activated service.
const SystemdEndpoint = "fd://"

// firstPassed is the number of the first descriptor that systemd passes.
const firstPassed = 3

// activated takes over the socket of systemd's socket activation. Its file
// belongs to systemd and stays.
func activated() (net.Listener, error) {
	if pid, err := strconv.Atoi(os.Getenv("LISTEN_PID")); err != nil || pid != os.Getpid() {
		return nil, errors.New("listen on fd://: systemd passed no socket to this process")
	}
	if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err != nil || n != 1 {
		return nil, fmt.Errorf("listen on fd://: systemd passed %q sockets, need one", os.Getenv("LISTEN_FDS"))
	}
	f := os.NewFile(firstPassed, "systemd socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on fd://: %w", err)
	}
	return l, nil
}

// States of the service for Notify.
const (
	NotifyReady    = "READY=1"
	NotifyStopping = "STOPPING=1"
)

// Notify tells systemd about the state of the service. Outside of systemd there
// is nobody to tell, and that is fine.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
