package network

import (
	"context"
	"time"
)

// Observe is told of every call to a plugin under the operation's name that
// dockershim's metrics used, how long it took and how it ended.
type Observe func(operation string, took time.Duration, err error)

// Observed are the same plugins, observed.
func (p Plugins) Observed(observe Observe) Plugins {
	out := Plugins{Default: observed{p.Default, observe}}
	if p.Choose != nil {
		out.Choose = func(ctx context.Context) Plugin { return observed{p.Choose(ctx), observe} }
	}
	for _, other := range p.Others {
		out.Others = append(out.Others, observed{other, observe})
	}
	return out
}

type observed struct {
	Plugin
	observe Observe
}

// SetUp implements Plugin.
func (o observed) SetUp(ctx context.Context, pod Pod) error {
	start := time.Now()
	err := o.Plugin.SetUp(ctx, pod)
	o.observe("set_up_pod", time.Since(start), err)
	return err
}

// TearDown implements Plugin.
func (o observed) TearDown(ctx context.Context, pod Pod) error {
	start := time.Now()
	err := o.Plugin.TearDown(ctx, pod)
	o.observe("tear_down_pod", time.Since(start), err)
	return err
}

// Addresses implements Plugin.
func (o observed) Addresses(ctx context.Context, pod Pod) ([]string, error) {
	start := time.Now()
	addresses, err := o.Plugin.Addresses(ctx, pod)
	o.observe("get_pod_network_status", time.Since(start), err)
	return addresses, err
}

// Check implements Checker; a plugin that cannot check finds nothing wrong.
func (o observed) Check(ctx context.Context, pod Pod) error {
	c, ok := o.Plugin.(Checker)
	if !ok {
		return nil
	}
	start := time.Now()
	err := c.Check(ctx, pod)
	o.observe("check_pod", time.Since(start), err)
	return err
}
