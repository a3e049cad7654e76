package node

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/coreos/go-systemd/v22/daemon"
)

func TestServeNotifiesSystemd(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "notify") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	log := slog.New(slog.DiscardHandler)
	notifySystemd(log, daemon.SdNotifyReady)
	go watchdog(t.Context(), log)
	for _, want := range []string{daemon.SdNotifyReady, daemon.SdNotifyWatchdog, daemon.SdNotifyWatchdog} {
		b := make([]byte, 64)
		n, err := l.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Errorf("got %q, %v, want %q", b[:n], err, want)
		}
	}
}
