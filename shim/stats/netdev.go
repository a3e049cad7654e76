package stats

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultInterface is the pod's own, whatever connected it.
const defaultInterface = "eth0"

// netInterface is one line of /proc/PID/net/dev.
type netInterface struct {
	name                                    string
	rxBytes, rxPackets, rxErrors, rxDropped uint64
	txBytes, txPackets, txErrors, txDropped uint64
}

// readNetwork reads the interfaces in the network namespace of a process,
// without the loopback.
func readNetwork(pid int) ([]netInterface, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return nil, err
	}
	return parseNetwork(string(b)), nil
}

func parseNetwork(text string) []netInterface {
	var out []netInterface
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		f := strings.Fields(rest)
		if !ok || len(f) < 12 || name == "lo" {
			continue
		}
		n := make([]uint64, 12)
		for i := range n {
			var err error
			if n[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
				ok = false
			}
		}
		if ok {
			out = append(out, netInterface{name, n[0], n[1], n[2], n[3], n[8], n[9], n[10], n[11]})
		}
	}
	return out
}

func networkUsage(interfaces []netInterface, at time.Time) *runtimeapi.NetworkUsage {
	if len(interfaces) == 0 {
		return nil
	}
	u := &runtimeapi.NetworkUsage{Timestamp: at.UnixNano()}
	for _, i := range interfaces {
		usage := &runtimeapi.NetworkInterfaceUsage{
			Name: i.name, RxBytes: value(i.rxBytes), RxErrors: value(i.rxErrors), TxBytes: value(i.txBytes), TxErrors: value(i.txErrors),
		}
		if i.name == defaultInterface && u.DefaultInterface == nil {
			u.DefaultInterface = usage
			continue
		}
		u.Interfaces = append(u.Interfaces, usage)
	}
	return u
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
