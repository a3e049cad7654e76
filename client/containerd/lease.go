package containerd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/leases/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/internal/proctree"
)

const (
	// leaseTime is how long the lease of a client that is killed stays where no other load comes before: containerd
	// removes it then, with what it held. It is also how long an archive may come to a halt.
	leaseTime = 10 * time.Minute
	renewTime = leaseTime / 4

	leasePrefix = "crishim-"
	// leaseOwner labels a lease with the mark of its process.
	leaseOwner = "io.crishim.process"
)

// sweep removes the leases of loads that were killed on this machine, with what they held. What it cannot remove
// expires.
func (s *Store) sweep(ctx context.Context) {
	list, err := s.leases.List(ctx, &leases.ListRequest{})
	if err != nil {
		return
	}
	for _, l := range list.GetLeases() {
		if strings.HasPrefix(l.GetID(), leasePrefix) && proctree.HasEnded(l.GetLabels()[leaseOwner]) {
			_, _ = s.leases.Delete(ctx, &leases.DeleteRequest{ID: l.GetID(), Sync: true})
		}
	}
}

// renew replaces the lease by one that lasts longer.
func (w *writer) renew() error {
	if time.Since(w.since) < renewTime {
		return nil
	}
	old := w.lease
	w.count++
	id := fmt.Sprintf("%s-%d", w.id, w.count)
	labels := map[string]string{"containerd.io/gc.expire": time.Now().Add(leaseTime).UTC().Format(time.RFC3339)}
	if self, err := proctree.Find(os.Getpid()); err == nil {
		labels[leaseOwner] = self.Mark()
	}
	_, err := w.store.leases.Create(w.ctx, &leases.CreateRequest{ID: id, Labels: labels})
	if err != nil {
		return err
	}
	w.lease, w.since = id, time.Now()
	for d := range w.held {
		if err := w.add("content", d); err != nil {
			return err
		}
	}
	if w.writing != "" {
		if err := w.add("ingests", w.writing); err != nil {
			return err
		}
	}
	return w.remove(old, false)
}

// remove ends a lease. With sync it returns when content that nothing holds is gone.
func (w *writer) remove(lease string, sync bool) error {
	if lease == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 30*time.Second)
	defer cancel()
	_, err := w.store.leases.Delete(ctx, &leases.DeleteRequest{ID: lease, Sync: sync})
	return err
}

// hold adds content to the lease, which need not be there yet.
func (w *writer) hold(d string) error {
	if w.held[d] {
		return nil
	}
	w.held[d] = true
	return w.add("content", d)
}

func (w *writer) add(kind, id string) error {
	_, err := w.store.leases.AddResource(w.ctx, &leases.AddResourceRequest{ID: w.lease, Resource: &leases.Resource{ID: id, Type: kind}})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}
