package output

import (
	"io"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// filesystem is one line of the image filesystem table.
type filesystem struct {
	use   string
	usage *runtimeapi.FilesystemUsage
}

var filesystemColumns = []column[filesystem]{
	{name: "USE", value: func(f filesystem, _ Options) string { return f.use }},
	{name: "MOUNTPOINT", shrink: true, value: func(f filesystem, _ Options) string { return f.usage.GetFsId().GetMountpoint() }},
	{name: "BYTES", value: func(f filesystem, _ Options) string { return size(f.usage.GetUsedBytes().GetValue()) }},
	{name: "INODES", value: func(f filesystem, _ Options) string {
		if f.usage.GetInodesUsed() == nil {
			return "-"
		}
		return countCell(int64(f.usage.GetInodesUsed().GetValue()))
	}},
}

// ImageFsInfo writes the use of the image filesystems; its default is crictl's
// {"status":{…}}.
func ImageFsInfo(w io.Writer, r *runtimeapi.ImageFsInfoResponse, o Options) error {
	v := messageView(r)
	v.root = func() ([]byte, error) {
		b, err := marshalProto(r)
		if err != nil {
			return nil, err
		}
		return append(append([]byte(`{"status":`), b...), '}'), nil
	}
	v.names = func() []string {
		all := append(slices.Clone(r.GetImageFilesystems()), r.GetContainerFilesystems()...)
		return each(all, func(u *runtimeapi.FilesystemUsage) string { return u.GetFsId().GetMountpoint() })
	}
	v.table = func(w io.Writer, o Options) error {
		var rows []filesystem
		for _, u := range r.GetImageFilesystems() {
			rows = append(rows, filesystem{"images", u})
		}
		for _, u := range r.GetContainerFilesystems() {
			rows = append(rows, filesystem{"containers", u})
		}
		return writeTable(w, rows, filesystemColumns, o)
	}
	return render(w, v, o)
}
