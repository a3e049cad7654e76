package output

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeFields are shown as RFC 3339 in inspections, as crictl does, while lists
// keep the message's nanoseconds.
var timeFields = []string{"createdAt", "startedAt", "finishedAt"}

// inspection is one object of an inspect command.
type inspection struct {
	status proto.Message
	info   map[string]string
	id     string
	name   string
	row    []string
}

// InspectContainers writes one object for one container, an array for several.
func InspectContainers(w io.Writer, rs []*runtimeapi.ContainerStatusResponse, o Options) error {
	return inspect(w, each(rs, func(r *runtimeapi.ContainerStatusResponse) inspection {
		s := r.GetStatus()
		return inspection{status: s, info: r.GetInfo(), id: s.GetId(), name: containerReference(&runtimeapi.Container{
			Id: s.GetId(), Labels: s.GetLabels(), Metadata: s.GetMetadata(),
		}, o), row: []string{
			shortID(s.GetId(), o), s.GetMetadata().GetName(), enumWord(s.GetState().String()), age(s.GetCreatedAt(), o),
			s.GetImage().GetImage(), s.GetReason(),
		}}
	}), []string{"CONTAINER", "NAME", "STATE", "CREATED", "IMAGE", "REASON"}, o)
}

// InspectPods writes one object for one sandbox, an array for several.
func InspectPods(w io.Writer, rs []*runtimeapi.PodSandboxStatusResponse, o Options) error {
	return inspect(w, each(rs, func(r *runtimeapi.PodSandboxStatusResponse) inspection {
		s := r.GetStatus()
		return inspection{status: s, info: r.GetInfo(), id: s.GetId(), name: podReference(&runtimeapi.PodSandbox{
			Id: s.GetId(), Labels: s.GetLabels(), Metadata: s.GetMetadata(),
		}), row: []string{
			shortID(s.GetId(), o), s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), enumWord(s.GetState().String()), age(s.GetCreatedAt(), o),
			s.GetNetwork().GetIp(),
		}}
	}), []string{"POD ID", "NAMESPACE", "NAME", "STATE", "CREATED", "IP"}, o)
}

// InspectImages writes one object for one image, an array for several.
func InspectImages(w io.Writer, rs []*runtimeapi.ImageStatusResponse, o Options) error {
	return inspect(w, each(rs, func(r *runtimeapi.ImageStatusResponse) inspection {
		i := r.GetImage()
		return inspection{status: i, info: r.GetInfo(), id: i.GetId(), name: imageReference(i), row: []string{
			shortID(i.GetId(), o), imageReference(i), size(i.GetSize()),
		}}
	}), []string{"IMAGE ID", "IMAGE", "SIZE"}, o)
}

func inspect(w io.Writer, all []inspection, headers []string, o Options) error {
	return render(w, view{
		fallback: JSON,
		items: func() ([][]byte, error) {
			return encodeAll(all, func(i inspection) ([]byte, error) { return i.document(o) })
		},
		wrap: func(items [][]byte) []byte {
			if len(items) == 1 {
				return items[0]
			}
			return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]"))
		},
		ids:   func() []string { return each(all, func(i inspection) string { return i.id }) },
		names: func() []string { return each(all, func(i inspection) string { return i.name }) },
		table: func(w io.Writer, o Options) error {
			columns := make([]column[inspection], len(headers))
			for i, h := range headers {
				columns[i] = column[inspection]{name: h, value: func(one inspection, _ Options) string { return one.row[i] }}
			}
			return writeTable(w, all, columns, o)
		},
	}, o)
}

// document is the status with the entries of the verbose map, keys sorted.
func (i inspection) document(o Options) ([]byte, error) {
	status, err := protoTree(i.status)
	if err != nil {
		return nil, err
	}
	if fields, ok := status.(map[string]any); ok {
		for _, name := range timeFields {
			if nanos, ok := fields[name].(string); ok {
				fields[name] = inspectTime(nanos, o)
			}
		}
	}
	document := infoTree(i.info)
	document["status"] = status
	return compactJSON(document)
}

// inspectTime turns a message's nanoseconds into RFC 3339. A time that never
// was stays crictl's year 1, which scripts compare with.
func inspectTime(nanos string, o Options) string {
	n, err := strconv.ParseInt(nanos, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}.Format(time.RFC3339Nano)
	}
	return time.Unix(0, n).In(o.location()).Format(time.RFC3339Nano)
}

// protoTree returns a message as maps and slices.
func protoTree(m proto.Message) (any, error) {
	raw, err := marshalProto(m)
	if err != nil {
		return nil, err
	}
	return decode(raw)
}

// infoTree reads the verbose map of an answer: a runtime puts a JSON document
// into each value, or plain text. The entries stand at the top of the output,
// next to "status": most runtimes have one, called "info".
func infoTree(info map[string]string) map[string]any {
	tree := make(map[string]any, len(info))
	for k, v := range info {
		tree[k] = infoValue(v)
	}
	return tree
}

// infoValue decodes objects and arrays, and leaves all else a string: an id
// that is all digits must not become a number.
func infoValue(v string) any {
	trimmed := strings.TrimSpace(v)
	if strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if tree, err := decode([]byte(trimmed)); err == nil {
			return tree
		}
	}
	return strings.Trim(v, `"`)
}
