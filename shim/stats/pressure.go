package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pressure is the kernel's pressure stall information about one resource.
type pressure struct{ some, full stall }

type stall struct {
	total                uint64 // nanoseconds
	avg10, avg60, avg300 float64
}

// readPressure reads lines such as "some avg10=0.00 avg60=0.00 avg300=0.00
// total=0", total in microseconds. Kernels without PSI have no such file.
func readPressure(dir, name string) *pressure {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	var p pressure
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "some":
			p.some = parseStall(f[1:])
		case "full":
			p.full = parseStall(f[1:])
		}
	}
	return &p
}

func parseStall(pairs []string) stall {
	var s stall
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if key == "total" {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				s.total = n * uint64(time.Microsecond)
			}
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch key {
		case "avg10":
			s.avg10 = n
		case "avg60":
			s.avg60 = n
		case "avg300":
			s.avg300 = n
		}
	}
	return s
}

func (p *pressure) cri() *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	return &runtimeapi.PsiStats{Some: p.some.cri(), Full: p.full.cri()}
}

func (s stall) cri() *runtimeapi.PsiData {
	return &runtimeapi.PsiData{Total: s.total, Avg10: s.avg10, Avg60: s.avg60, Avg300: s.avg300}
}
