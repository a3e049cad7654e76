package cli

import (
	"math"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzFlagValues: any value of a flag is either wrong usage or parsed to a valid value.
func FuzzFlagValues(f *testing.F) {
	for _, text := range []string{
		"dangling=true", "reference=[", "before=", "since=a", "1.5", "-1s", "1e300", "NaN", "9223372036854775807s", "0x10", "1h2m",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if filter, err := parseImageFilter(text); err == nil {
			images := []*runtimeapi.Image{nil, {}, {Id: "sha256:1", RepoTags: []string{"a:b"}}}
			if _, err := filter.apply(images, slices.Clone(images)); err != nil && err.Error() == "" {
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
