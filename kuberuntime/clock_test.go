package kuberuntime

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestBackOffCountsFromTheEnd: a container that lives at most ten minutes after its back-off keeps the back-off. A
// longer life resets it. Collecting old entries does not change it.
func TestBackOffCountsFromTheEnd(t *testing.T) {
	t.Parallel()
	b, now := newBackoff(), time.Unix(100_000, 0)
	for _, step := range []struct{ lives, want time.Duration }{
		{0, 0}, {time.Second, 10 * time.Second}, {time.Second, 20 * time.Second}, {time.Second, 40 * time.Second}, {time.Second, 80 * time.Second},
		{time.Second, 160 * time.Second}, {time.Second, backoffMax}, {6 * time.Minute, backoffMax}, {10 * time.Minute, backoffMax}, {time.Second, backoffMax},
		{11 * time.Minute, 0}, {time.Second, 10 * time.Second},
	} {
		ended := now.Add(step.lives)
		if got, _, _ := b.wait("k", ended, ended); got != step.want {
			t.Errorf("after a life of %s: got %s, want %s", step.lives, got, step.want)
		}
		now = ended.Add(step.want)
		b.collect(now.Add(-time.Second))
		b.next("k", ended, now)
	}
}

// TestWaitsWhenTheClockIsPutBack: setting back the clock does not extend a wait.
func TestWaitsWhenTheClockIsPutBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	b := newBackoff()
	b.next("k", now, now)
	if got, _, _ := b.wait("k", now, now.Add(-time.Hour)); got != backoffInitial {
		t.Errorf("back-off: got %s, want %s", got, backoffInitial)
	}
	if got, _, _ := b.wait("k", now, now.Add(time.Hour)); got != 0 {
		t.Errorf("back-off when the clock was put forward: got %s", got)
	}
}

// TestCrashKeyIsOfWhatRuns: the key does not depend on the internal form of a quantity, which changes when the quantity
// is printed.
func TestCrashKeyIsOfWhatRuns(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	c := &v1.Container{Name: "a", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1.00000000000001"),
	}}}
	key := crashKey(p, c.DeepCopy())
	for name, q := range c.Resources.Limits {
		_ = q.String()
		c.Resources.Limits[name] = q
	}
	if got := crashKey(p, c); got != key {
		t.Errorf("got %s, want %s", got, key)
	}
	c.Resources.Limits[v1.ResourceCPU] = resource.MustParse("501m")
	if crashKey(p, c) == key {
		t.Error("another limit has the same key")
	}
}
