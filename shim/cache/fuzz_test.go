package cache

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// changer is what both the engine and its cache can change.
type changer interface {
	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStart(ctx context.Context, id string, o container.StartOptions) error
	ContainerStop(ctx context.Context, id string, o container.StopOptions) error
	ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error
	ImageRemove(ctx context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error)
}

// FuzzCache: whatever is done to an engine, by others or through the cache, with a
// stream of events that breaks in between, in the end the cache tells what the
// engine has, without asking it.
func FuzzCache(f *testing.F) {
	f.Add("\x00\x01\x02\x03")
	f.Add("\x00\x08\x01\x09\x06\x02\x0a\x03\x0b")
	f.Add("\x00\x06\x01\x06\x04\x06\x05\x07\x0c\x06")
	f.Fuzz(func(t *testing.T, ops string) {
		fx := newFixture(t)
		fx.make("first")
		fx.follow()
		ctx := t.Context()
		ids, names := []string{}, 0
		for _, op := range []byte(ops[:min(len(ops), 40)]) {
			own := op&8 != 0 // through the cache
			engine := changer(fx.engine)
			if own {
				engine = fx.Cache
			}
			id := ""
			if len(ids) > 0 {
				id = ids[int(op/16)%len(ids)]
			}
			var err error
			switch op % 8 {
			case 0:
				var made container.CreateResponse
				names++
				made, err = engine.ContainerCreate(ctx, config(), &container.HostConfig{}, nil, nil, string(rune('a'+names)))
				id = made.ID
				ids = append(ids, id)
			case 1:
				err = engine.ContainerStart(ctx, id, container.StartOptions{})
			case 2:
				err = engine.ContainerStop(ctx, id, container.StopOptions{})
			case 3:
				err = engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
			case 4:
				fx.engine.Exit(id, 3)
			case 5:
				_, err = engine.ImageRemove(ctx, "fresh:1", image.RemoveOptions{})
			case 6:
				fx.engine.BreakEvents(errors.New("cut"))
			case 7:
				fx.engine.AddImage("fresh:1")
			}
			if own && op%8 < 4 && err == nil { // an engine refuses what cannot be
				has, errHas := fx.engine.ContainerInspect(ctx, id)
				tells, errTells := fx.Cache.ContainerInspect(Reading(ctx), id)
				if (errHas == nil) != (errTells == nil) || errHas == nil && has.State.Status != tells.State.Status {
					t.Errorf("after an own change: got %v, %v, want %v, %v", tells.State, errTells, has.State, errHas)
				}
			}
		}
		want := fx.view(ctx, fx.engine)
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			fx.settle()
			before := len(fx.engine.Calls())
			got := fx.view(Reading(ctx), fx.Cache)
			if got == want && len(fx.engine.Calls()) == before {
				return
			}
			if time.Now().After(end) {
				fx.truth("in the end")
				t.Fatal("the cache does not come to what the engine has")
			}
		}
	})
}
