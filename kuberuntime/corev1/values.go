package corev1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// UID is an object's identity in time and space.
type UID string

// Time is a moment that manifests write in RFC 3339, to the second; the zero
// Time is null.
type Time struct{ time.Time }

// NewTime wraps t.
func NewTime(t time.Time) Time { return Time{t} }

// MarshalJSON writes t in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(t.UTC().Format(time.RFC3339))
}

// UnmarshalJSON reads null or RFC 3339.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		t.Time = time.Time{}
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("want a time such as 2026-01-02T15:04:05Z: %w", err)
	}
	parsed, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("want a time such as 2026-01-02T15:04:05Z: %w", err)
	}
	t.Time = parsed.Local()
	return nil
}

// FieldsV1 is kept as it was read; nothing looks into it.
type FieldsV1 struct{ Raw []byte }

// MarshalJSON gives back what was read.
func (f FieldsV1) MarshalJSON() ([]byte, error) {
	if f.Raw == nil {
		return []byte("null"), nil
	}
	return f.Raw, nil
}

// UnmarshalJSON keeps b.
func (f *FieldsV1) UnmarshalJSON(b []byte) error {
	if string(b) != "null" {
		f.Raw = append(f.Raw[:0], b...)
	}
	return nil
}

// Type says what an IntOrString holds.
type Type int64

// The kinds of IntOrString, under the names that k8s.io/apimachinery gives them.
const (
	Int Type = iota
	String
)

// IntOrString is a port: its number, or the name of a container's port.
type IntOrString struct {
	Type   Type
	IntVal int32
	StrVal string
}

// FromInt32 is a number.
func FromInt32(n int32) IntOrString { return IntOrString{Type: Int, IntVal: n} }

// FromString is a name.
func FromString(s string) IntOrString { return IntOrString{Type: String, StrVal: s} }

// String is the number or the name.
func (v IntOrString) String() string {
	if v.Type == String {
		return v.StrVal
	}
	return strconv.Itoa(int(v.IntVal))
}

// IntValue is the number; of a name that is all digits, too, else 0.
func (v IntOrString) IntValue() int {
	if v.Type == String {
		n, _ := strconv.Atoi(v.StrVal) // a name is no number: 0 says so
		return n
	}
	return int(v.IntVal)
}

// MarshalJSON writes a number or a string.
func (v IntOrString) MarshalJSON() ([]byte, error) {
	if v.Type == String {
		return json.Marshal(v.StrVal)
	}
	return json.Marshal(v.IntVal)
}

// UnmarshalJSON reads a number or a string.
func (v *IntOrString) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		v.Type = String
		return json.Unmarshal(b, &v.StrVal)
	}
	v.Type = Int
	if err := json.Unmarshal(b, &v.IntVal); err != nil {
		return fmt.Errorf("want a number or a string: %w", err)
	}
	return nil
}
