package output

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type inspection struct {
	status proto.Message
	info   map[string]string
	id     string
	name   string
	row    []string
}

// InspectContainers writes an object for a single container, otherwise an array.
func InspectContainers(w io.Writer, rs []*runtimeapi.ContainerStatusResponse, o Options) error {
	return inspect(w, each(rs, func(r *runtimeapi.ContainerStatusResponse) inspection {
		s := r.GetStatus()
		name := containerReference(&runtimeapi.Container{Id: s.GetId(), Labels: s.GetLabels(), Metadata: s.GetMetadata()}, o)
		return inspection{s, r.GetInfo(), s.GetId(), name, []string{
			shortID(s.GetId(), o), s.GetMetadata().GetName(), enumWord(s.GetState().String()), age(s.GetCreatedAt(), o),
			s.GetImage().GetImage(), s.GetReason(),
		}}
	}), []string{"CONTAINER", "NAME", "STATE", "CREATED", "IMAGE", "REASON"}, func(w io.Writer, o Options) error { return longContainerStatus(w, rs, o) }, o)
}

// InspectPods writes an object for a single sandbox, otherwise an array.
func InspectPods(w io.Writer, rs []*runtimeapi.PodSandboxStatusResponse, o Options) error {
	return inspect(w, each(rs, func(r *runtimeapi.PodSandboxStatusResponse) inspection {
		s := r.GetStatus()
		name := podReference(&runtimeapi.PodSandbox{Id: s.GetId(), Labels: s.GetLabels(), Metadata: s.GetMetadata()})
		return inspection{s, r.GetInfo(), s.GetId(), name, []string{
			shortID(s.GetId(), o), s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), enumWord(s.GetState().String()),
			age(s.GetCreatedAt(), o), s.GetNetwork().GetIp(),
		}}
	}), []string{"POD ID", "NAMESPACE", "NAME", "STATE", "CREATED", "IP"}, func(w io.Writer, o Options) error { return longPodStatus(w, rs, o) }, o)
}

// InspectImages writes an object for a single image, otherwise an array. asked maps images to the tags that the user
// named. An image without such a tag is shown by its first tag, its first digest or its id.
func InspectImages(w io.Writer, rs []*runtimeapi.ImageStatusResponse, asked map[*runtimeapi.ImageStatusResponse]string, o Options) error {
	return inspect(w, each(rs, func(r *runtimeapi.ImageStatusResponse) inspection {
		i, name := r.GetImage(), cmp.Or(asked[r], imageReference(r.GetImage()))
		return inspection{i, r.GetInfo(), i.GetId(), name, []string{shortID(i.GetId(), o), name, size(i.GetSize())}}
	}), []string{"IMAGE ID", "IMAGE", "SIZE"}, func(w io.Writer, _ Options) error { return longImageStatus(w, rs) }, o)
}

func inspect(w io.Writer, all []inspection, headers []string, long func(io.Writer, Options) error, o Options) error {
	return render(w, view{
		fallback: JSON,
		items: func() ([][]byte, error) {
			return encodeAll(all, func(i inspection) ([]byte, error) { return i.document(o) })
		},
		array: true,
		ids:   each(all, func(i inspection) string { return i.id }),
		names: each(all, func(i inspection) string { return i.name }),
		table: func(w io.Writer, o Options) error {
			columns := make([]column[inspection], len(headers))
			for i, h := range headers {
				columns[i] = column[inspection]{name: h, value: func(one inspection, _ Options) string { return one.row[i] }}
			}
			return writeTable(w, all, columns, o)
		},
		long: long,
	}, o)
}

// document returns the status and the entries of the info map with sorted keys. Times are in RFC 3339, as in crictl; only
// lists keep the nanoseconds of the message. An unset time is printed as year 1, as in crictl: scripts compare with it.
func (i inspection) document(o Options) ([]byte, error) {
	document, err := withInfo(i.status, i.info)
	if err != nil {
		return nil, err
	}
	if fields, ok := document["status"].(map[string]any); ok {
		for _, name := range []string{"createdAt", "startedAt", "finishedAt"} {
			if text, ok := fields[name].(string); ok {
				var at time.Time
				if nanos, err := strconv.ParseInt(text, 10, 64); err == nil && nanos > 0 {
					at = time.Unix(0, nanos).In(o.location())
				}
				fields[name] = at.Format(time.RFC3339Nano)
			}
		}
	}
	return compactJSON(document)
}

// withInfo returns a message under "status", and next to it the entries of the verbose info map; most runtimes have a
// single entry, "info". Values are JSON documents or plain text. Only objects and arrays are decoded: an id that
// consists of digits must not become a number.
func withInfo(status proto.Message, info map[string]string) (map[string]any, error) {
	raw, err := marshalProto(status)
	if err != nil {
		return nil, err
	}
	tree := make(map[string]any, len(info)+1)
	for k, v := range info {
		tree[k] = strings.Trim(v, `"`)
		if trimmed := strings.TrimSpace(v); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
			if value, err := decode([]byte(trimmed)); err == nil {
				tree[k] = value
			}
		}
	}
	tree["status"], err = decode(raw)
	return tree, err
}
