package disk

import (
	"testing"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/output"
)

// TestFreed counts a shared layer once, and only if no image with the layer is left.
func TestFreed(t *testing.T) {
	t.Parallel()
	i := ofShim(&api.ImageUsageResponse{LayerSizes: []int64{100, 20, 3}, Images: []*api.ImageUsage{
		{Id: "a", Layers: []int32{0, 1}}, {Id: "b", Layers: []int32{0, 2}, Used: true}, {Id: "broken", Layers: []int32{7, -1}},
	}})
	i.count(nil)
	for _, c := range []struct {
		ids  []string
		want uint64
	}{{nil, 0}, {[]string{"a"}, 20}, {[]string{"b"}, 3}, {[]string{"a", "b"}, 123}, {[]string{"broken", "unknown"}, 0}} {
		if got := i.Freed(c.ids...); got != (output.DiskSize{Bytes: c.want}) {
			t.Errorf("%v: got %v, want %d", c.ids, got, c.want)
		}
	}
	if total, _ := i.Size("a"); i.Total().Bytes != 123 || total.Bytes != 120 || !i.Used("b") || i.Used("a") {
		t.Errorf("got %v in all, %v of a", i.Total(), total)
	}
	i.bound = output.AtMost
	if got := i.Freed("a").String() + ", " + i.Freed().String(); got != "at most 20B, 0B" {
		t.Errorf("got %s", got)
	}
}

func TestFreedOfWhatAContainerStandsOn(t *testing.T) {
	t.Parallel()
	i := &Images{sizes: []int64{5, 6}, parts: map[string][]int32{"a": {0, 1}}}
	i.count([]int32{0})
	if got := i.Freed("a").Bytes; got != 6 || i.Total().Bytes != 11 {
		t.Errorf("got %d of %v", got, i.Total())
	}
}

func TestPlus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want string }{{"", "", ""}, {"", output.AtMost, output.AtMost}, {output.AtLeast, "", output.AtLeast}, {output.AtLeast, output.AtMost, output.About}} {
		if got := (output.DiskSize{Bytes: 1, Bound: c.a}).Plus(output.DiskSize{Bytes: 2, Bound: c.b}); got != (output.DiskSize{Bytes: 3, Bound: c.want}) {
			t.Errorf("%q and %q: got %v", c.a, c.b, got)
		}
	}
}
