package image

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/output"
)

// TestHistorySteps has both forms: Docker's own, and OCI's with the layer sizes of the runtime.
func TestHistorySteps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	size := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		info  string
		sizes []int64
		want  []output.HistoryEntry
	}{
		"none": {info: `{"imageSpec":{"history":[]}}`},
		"Docker's": {
			info: `{"imageSpec":{"history":[{"Id":"sha256:ab","Created":1767323045,"CreatedBy":"CMD [\"sh\"]","Size":0,"Comment":"x","Tags":["a:1"]},
				{"Id":"<missing>","Created":1767323045,"CreatedBy":"ADD","Size":7}]}}`,
			want: []output.HistoryEntry{{Created: &at, CreatedBy: `CMD ["sh"]`, Size: size(0), Comment: "x", ID: "ab"}, {Created: &at, CreatedBy: "ADD", Size: size(7)}},
		},
		"OCI's": {
			info: `{"imageSpec":{"history":[{"created":"2026-01-02T03:04:05Z","created_by":"ADD"},{"created_by":"CMD","empty_layer":true},{"created_by":"RUN","comment":"x"},{"created_by":"more"}],
				"rootfs":{"diff_ids":["sha256:a","sha256:b"]}}}`,
			sizes: []int64{7, -1},
			want:  []output.HistoryEntry{{CreatedBy: "more"}, {CreatedBy: "RUN", Comment: "x"}, {CreatedBy: "CMD", Size: size(0)}, {Created: &at, CreatedBy: "ADD", Size: size(7)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var config imageConfig
			if err := json.Unmarshal([]byte(c.info), &config); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, config.steps(func() []int64 { return c.sizes })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
