package cli

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// slowEvents is a runtime that opens event streams slowly, and has none.
type slowEvents struct {
	runtimeapi.RuntimeServiceClient
	opened bool
}

func (r *slowEvents) GetContainerEvents(context.Context, *runtimeapi.GetEventsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	time.Sleep(10 * time.Millisecond)
	r.opened = true
	return nil, errors.New("no events")
}

// TestWatchListensBeforeItLists: the event stream is requested before the first list.
func TestWatchListensBeforeItLists(t *testing.T) {
	t.Parallel()
	runtime, listed := &slowEvents{}, errors.New("listed")
	err := Watch(t.Context(), &client.Conn{Runtime: runtime}, func(context.Context) error {
		if !runtime.opened {
			t.Error("the list came before the events")
		}
		return listed
	})
	if !errors.Is(err, listed) {
		t.Errorf("got %v", err)
	}
}
