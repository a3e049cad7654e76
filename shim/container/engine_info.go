package container

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// infoFresh is how long the engine's account of itself is good for. Only a
// restart of the engine changes what is looked at here.
const infoFresh = time.Minute

// infoCache keeps that account: asking costs more than creating a container.
type infoCache struct {
	engine Engine
	now    func() time.Time

	mu   sync.Mutex // guards info and at
	info system.Info
	at   time.Time
}

func (c *infoCache) get(ctx context.Context) (system.Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && c.now().Sub(c.at) < infoFresh {
		return c.info, nil
	}
	info, err := c.engine.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	c.info, c.at = info, c.now()
	return info, nil
}

// needsInfo says whether a plan depends on that account: most do not when a
// person writes the config, all do when a kubelet does.
func needsInfo(r *runtimeapi.CreateContainerRequest) bool {
	sc, limits := r.GetConfig().GetLinux().GetSecurityContext(), r.GetConfig().GetLinux().GetResources()
	const localhost = runtimeapi.SecurityProfile_Localhost
	return r.GetSandboxConfig().GetLinux().GetCgroupParent() != "" ||
		len(limits.GetUnified())+len(limits.GetHugepageLimits()) > 0 ||
		slices.ContainsFunc(r.GetConfig().GetMounts(), (*runtimeapi.Mount).GetSelinuxRelabel) ||
		sc.GetSeccomp().GetProfileType() == localhost || sc.GetApparmor().GetProfileType() == localhost ||
		sc.GetApparmorProfile() != "" || sc.GetSeccompProfilePath() != "" //nolint:staticcheck // old kubelets send them
}
