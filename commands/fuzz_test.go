package commands

import (
	"math"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzFlagValues: what the flags of run, cp, wait and images hold is wrong usage,
// or something that a runtime can be asked for.
func FuzzFlagValues(f *testing.F) {
	for _, text := range []string{
		"80:80", "127.0.0.1:8080:80/udp", "[::1]:1:65535/sctp", "::1:80:80", ":80", "0:1", "80:80/tcp/udp", "1.2.3.4:80",
		"/a:/b:ro", "a:/b", ".:/b:rslave,z", "/a:b", "::", "/a:/b:", "A=b", "=b", "A", "A==",
		"web:/etc/passwd", "./web:/x", ":x", "ns/web/app:x:y", "running", "log=(", "log=x", "image=", "image=a",
		"dangling=true", "reference=[", "before=", "since=a", "1.5", "-1s", "1e300", "NaN", "9223372036854775807s", "0x10", "1h2m",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parsePort(text); err == nil {
			_, ipErr := netip.ParseAddr(p.GetHostIp())
			if !inRange(p.GetHostPort()) || !inRange(p.GetContainerPort()) || p.GetHostIp() != "" && ipErr != nil || runtimeapi.Protocol_name[int32(p.GetProtocol())] == "" {
				t.Errorf("--publish %q is %v", text, p)
			}
		}
		if m, err := parseVolume(text); err == nil {
			if !filepath.IsAbs(m.GetHostPath()) || !filepath.IsAbs(m.GetContainerPath()) {
				t.Errorf("--volume %q is %v", text, m)
			}
		}
		var envs []*runtimeapi.KeyValue
		set := envFlag(testEnv(), &envs, "").(*typedFlag).text
		if err := set.Set(text); err == nil && len(envs) > 0 {
			if e := envs[0]; e.GetKey() == "" || strings.Contains(e.GetKey(), "=") || e.GetKey()+"="+string(e.GetValue()) != text {
				t.Errorf("--env %q is %v", text, e)
			}
		}
		if container, path, remote := splitPath(text); remote && (container == "" || container+":"+path != text) || !remote && path != text {
			t.Errorf("cp %q is %q, %q, %t", text, container, path, remote)
		}
		if g, err := parseGoal(text); err == nil && g.wanted() == "" {
			t.Errorf("--for %q waits for nothing", text)
		}
		if filter, err := parseImageFilter(text); err == nil {
			if _, err := filter.apply([]*runtimeapi.Image{nil, {}, {Id: "sha256:1", RepoTags: []string{"a:b"}}}); err != nil && err.Error() == "" {
				t.Errorf("--filter %q fails without a word", text)
			}
		}
		if d, err := parseDuration(text); err == nil {
			if again, err := parseDuration(d.String()); err != nil || again != d {
				t.Errorf("%q is %v, which is %v, %v", text, d, again, err)
			}
			if math.Abs(d.Seconds()) > float64(math.MaxInt64)/float64(time.Second) {
				t.Errorf("%q is %v", text, d)
			}
		}
	})
}

func inRange(port int32) bool { return port > 0 && port < 1<<16 }
