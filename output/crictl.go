package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/go-units"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

// crictl prints lines of "Name: value" in its lists with -v and for single objects with -o table. Options.Crictl
// selects these texts. They are reproduced exactly, because scripts parse them.

// crictlTable writes a table as crictl does: cells have at least 20 columns whatever the terminal's width.
func crictlTable(w io.Writer, cells [][]string) error {
	t := tabwriter.NewWriter(w, 20, 1, gap, ' ', 0)
	for _, line := range cells {
		if _, err := fmt.Fprintln(t, strings.Join(line, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

type longText struct{ bytes.Buffer }

// line writes a name and its value, or nothing if the value is empty.
func (t *longText) line(name, value string) {
	if value != "" {
		fmt.Fprintf(t, "%s: %s\n", name, Sanitize(value))
	}
}

func (t *longText) pairs(name string, pairs map[string]string) {
	if len(pairs) == 0 {
		return
	}
	fmt.Fprintf(t, "%s:\n", name)
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		fmt.Fprintf(t, "\t%s -> %s\n", Sanitize(key), Sanitize(pairs[key]))
	}
}

// info writes the verbose info as Go prints a map.
func (t *longText) info(info map[string]string) {
	if len(info) == 0 {
		return
	}
	entries := make([]string, 0, len(info))
	for _, key := range slices.Sorted(maps.Keys(info)) {
		var compact bytes.Buffer
		value := Sanitize(info[key])
		if json.Compact(&compact, []byte(info[key])) == nil {
			value = string(EscapeJSON(compact.Bytes()))
		}
		entries = append(entries, Sanitize(key)+":"+value)
	}
	fmt.Fprintf(t, "Info: map[%s]\n", strings.Join(entries, " "))
}

// crictlAge returns an age in crictl's form, which differs from the tables.
func crictlAge(nanos int64, o Options) string {
	return units.HumanDuration(o.Now.Sub(time.Unix(0, nanos))) + " ago"
}

// crictlTime returns a time in Go's default form.
func crictlTime(nanos int64, o Options) string { return time.Unix(0, nanos).In(o.location()).String() }

func writeLong[T any](w io.Writer, rows []T, separator string, text func(*longText, T)) error {
	var all bytes.Buffer
	for _, row := range rows {
		var t longText
		text(&t, row)
		all.Write(t.Bytes())
		all.WriteString(separator)
	}
	_, err := w.Write(all.Bytes())
	return err
}

func longContainers(w io.Writer, rows []container, o Options) error {
	return writeLong(w, rows, "\n", func(t *longText, c container) {
		t.line("ID", c.GetId())
		t.line("PodID", c.GetPodSandboxId())
		t.line("Namespace", orUnknown(c.GetLabels()[kube.LabelPodNamespace]))
		t.line("Name", c.GetMetadata().GetName())
		t.line("Attempt", fmt.Sprint(containerAttempt(c)))
		t.line("State", enumWord(c.GetState().String()))
		t.line("Image", containerImage(c, Options{NoTrunc: true, Crictl: true}))
		t.line("Created", crictlAge(c.GetCreatedAt(), o))
		t.pairs("Labels", c.GetLabels())
		t.pairs("Annotations", c.GetAnnotations())
	})
}

func longPods(w io.Writer, rows []pod, o Options) error {
	return writeLong(w, rows, "\n", func(t *longText, p pod) {
		t.line("ID", p.GetId())
		t.line("Name", p.GetMetadata().GetName())
		t.line("UID", p.GetMetadata().GetUid())
		t.line("Namespace", p.GetMetadata().GetNamespace())
		t.line("Status", enumWord(p.GetState().String()))
		t.line("Created", crictlTime(p.GetCreatedAt(), o))
		t.pairs("Labels", p.GetLabels())
		t.pairs("Annotations", p.GetAnnotations())
		t.line("Runtime", cmp.Or(p.GetRuntimeHandler(), "(default)"))
	})
}

func longImages(w io.Writer, rows []*runtimeapi.Image) error {
	return writeLong(w, rows, "\n", func(t *longText, i *runtimeapi.Image) {
		t.line("ID", i.GetId())
		for _, tag := range i.GetRepoTags() {
			t.line("RepoTags", tag)
		}
		for _, digest := range i.GetRepoDigests() {
			t.line("RepoDigests", digest)
		}
		t.line("Size", fmt.Sprint(i.GetSize()))
		t.line("Username", i.GetUsername())
		if i.GetUid() != nil {
			t.line("Uid", fmt.Sprint(i.GetUid().GetValue()))
		}
		if i.GetPinned() {
			t.line("Pinned", "true")
		}
	})
}

func longContainerStatus(w io.Writer, rs []*runtimeapi.ContainerStatusResponse, o Options) error {
	return writeLong(w, rs, "", func(t *longText, r *runtimeapi.ContainerStatusResponse) {
		s := r.GetStatus()
		t.line("ID", s.GetId())
		t.line("Name", s.GetMetadata().GetName())
		t.line("State", s.GetState().String())
		t.line("Created", crictlAge(s.GetCreatedAt(), o))
		if s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			t.line("Started", crictlAge(s.GetStartedAt(), o))
		}
		if s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			t.line("Finished", crictlAge(s.GetFinishedAt(), o))
			t.line("Exit Code", fmt.Sprint(s.GetExitCode()))
		}
		t.pairs("Labels", s.GetLabels())
		t.pairs("Annotations", s.GetAnnotations())
		t.info(r.GetInfo())
	})
}

func longPodStatus(w io.Writer, rs []*runtimeapi.PodSandboxStatusResponse, o Options) error {
	return writeLong(w, rs, "", func(t *longText, r *runtimeapi.PodSandboxStatusResponse) {
		s := r.GetStatus()
		t.line("ID", s.GetId())
		t.line("Name", s.GetMetadata().GetName())
		t.line("UID", s.GetMetadata().GetUid())
		t.line("Namespace", s.GetMetadata().GetNamespace())
		t.line("Attempt", fmt.Sprint(s.GetMetadata().GetAttempt()))
		t.line("Status", s.GetState().String())
		t.line("Created", crictlTime(s.GetCreatedAt(), o))
		if s.GetNetwork() != nil {
			addresses := []string{s.GetNetwork().GetIp()}
			for _, more := range s.GetNetwork().GetAdditionalIps() {
				addresses = append(addresses, more.GetIp())
			}
			fmt.Fprintf(t, "IP Addresses: %s\n", Sanitize(strings.Join(addresses, ", ")))
		}
		t.pairs("Labels", s.GetLabels())
		t.pairs("Annotations", s.GetAnnotations())
		t.info(r.GetInfo())
	})
}

func longImageStatus(w io.Writer, rs []*runtimeapi.ImageStatusResponse) error {
	return writeLong(w, rs, "", func(t *longText, r *runtimeapi.ImageStatusResponse) {
		i := r.GetImage()
		t.line("ID", i.GetId())
		for _, tag := range i.GetRepoTags() {
			t.line("Tag", tag)
		}
		for _, digest := range i.GetRepoDigests() {
			t.line("Digest", digest)
		}
		t.line("Size", size(i.GetSize()))
		t.info(r.GetInfo())
	})
}

func longImageFsInfo(w io.Writer, r *runtimeapi.ImageFsInfoResponse) error {
	var t longText
	for _, part := range []struct {
		title string
		all   []*runtimeapi.FilesystemUsage
	}{{"Container", r.GetContainerFilesystems()}, {"Image", r.GetImageFilesystems()}} {
		fmt.Fprintf(&t, "%s Filesystem \n", part.title)
		for i, f := range part.all {
			t.line(fmt.Sprintf("TimeStamp[%d]", i), fmt.Sprint(f.GetTimestamp()))
			t.line(fmt.Sprintf("Disk[%d]", i), units.HumanSize(float64(f.GetUsedBytes().GetValue())))
			t.line(fmt.Sprintf("Inodes[%d]", i), fmt.Sprint(f.GetInodesUsed().GetValue()))
			t.line(fmt.Sprintf("Mountpoint[%d]", i), f.GetFsId().GetMountpoint())
		}
	}
	_, err := w.Write(t.Bytes())
	return err
}
