package client

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that boundedCodec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits of a single answer when many nodes or a relay are queried. An empty message takes two bytes on the wire and
// hundreds in memory, so fields are counted as well as bytes. A container with labels has about a hundred fields.
const (
	maxAnswer = 64 << 20
	maxFields = 1 << 20
)

// boundedCodec refuses answers with more than maxFields fields before it decodes them.
type boundedCodec struct{ encoding.CodecV2 }

func (c boundedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(proto.Message); ok && countFields(data.Materialize(), m.ProtoReflect().Descriptor(), 0) > maxFields {
		return fmt.Errorf("the answer has more than %d fields", maxFields)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// countFields adds the fields of an encoded message, including nested messages, to count. It stops above maxFields.
func countFields(b []byte, d protoreflect.MessageDescriptor, count int) int {
	for len(b) > 0 && count <= maxFields {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return count // the decoder reports the error
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return count
		}
		count++
		if field := d.Fields().ByNumber(number); field != nil && field.Message() != nil && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b[tag:])
			count = countFields(inner, field.Message(), count)
		}
		b = b[tag+size:]
	}
	return count
}
