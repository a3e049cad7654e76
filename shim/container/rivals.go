package container

import (
	"fmt"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rivals knows the requests that want to make the same container at the same
// time. One of them wins, and its container is not taken for what an earlier
// request left unanswered. The zero value is ready to use.
type rivals struct {
	mu    sync.Mutex
	races map[string]*race
}

type race struct {
	running int
	winner  string // the id of what was made
}

// enter notes a request and gives what ends it.
func (r *rivals) enter(request *runtimeapi.CreateContainerRequest) (*race, func()) {
	m := request.GetConfig().GetMetadata()
	key := fmt.Sprintf("%s/%s/%d", request.GetPodSandboxId(), m.GetName(), m.GetAttempt())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.races == nil {
		r.races = map[string]*race{}
	}
	c := r.races[key]
	if c == nil {
		c = &race{}
		r.races[key] = c
	}
	c.running++
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.running--; c.running == 0 {
			delete(r.races, key)
		}
	}
}
