package manifest

import (
	"testing"

	"github.com/crishim/crishim/kuberuntime/criconfig"
)

func TestLimitedSwapNeedsCgroupV2(t *testing.T) {
	t.Parallel()
	o := podRuntimeOptions{limitedSwap: true, singleOOM: true}
	const want = "--limited-swap needs cgroup v2, and this host has cgroup v1"
	if err := o.setUp(&criconfig.Host{}); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	host := criconfig.Host{CgroupV2: true}
	if err := o.setUp(&host); err != nil || !host.LimitedSwap || !host.SingleProcessOOMKill {
		t.Errorf("got %v, %+v", err, host)
	}
}
