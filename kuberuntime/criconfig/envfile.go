package criconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Files reads a file in a volume of a pod. It is nil before the volumes exist. The pod then gets no variables from
// files.
type Files func(volume, path string) ([]byte, error)

func (read Files) value(ref *v1.FileKeySelector) (value string, found bool, err error) {
	if read == nil {
		return "", false, nil
	}
	optional := ptr.Deref(ref.Optional, false)
	text, err := read(ref.VolumeName, ref.Path)
	if errors.Is(err, fs.ErrNotExist) && optional {
		return "", false, nil
	}
	if err == nil {
		value, found, err = envFileValue(string(text), ref.Key)
	}
	if err == nil && !found && !optional {
		err = fmt.Errorf("no key %s", ref.Key)
	}
	if err != nil {
		err = fmt.Errorf("file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
	}
	return value, found, err
}

// envFileValue returns the value of a key in an env file, like the kubelet's ParseEnv. The file has NAME='value' lines
// and comments. A value is literal and may span several lines. Errors omit the text, which may be secret.
func envFileValue(text, key string) (value string, found bool, err error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for line := 1; text != ""; line++ {
		text = strings.TrimLeft(text, " \t")
		current, rest, _ := strings.Cut(text, "\n")
		name, assigned, ok := strings.Cut(current, "=")
		switch {
		case current == "" || current[0] == '#':
		case !ok || name == "" || strings.TrimRight(name, " \t") != name:
			return "", false, fmt.Errorf("line %d is not NAME='value'", line)
		case strings.HasPrefix(assigned, " ") || strings.HasPrefix(assigned, "\t"): // an empty value, as in a shell
			if name == key {
				return "", true, nil
			}
		case !strings.HasPrefix(assigned, "'"):
			return "", false, fmt.Errorf("line %d has a value without single quotes", line)
		default:
			quoted, after, closed := strings.Cut(text[len(name)+len("='"):], "'")
			if !closed {
				return "", false, fmt.Errorf("line %d has a quote without an end", line)
			}
			line += strings.Count(quoted, "\n")
			var comment string
			comment, rest, _ = strings.Cut(after, "\n")
			if comment = strings.TrimLeft(comment, " \t"); comment != "" && comment[0] != '#' {
				return "", false, fmt.Errorf("line %d goes on behind its value", line)
			}
			if name == key {
				if strings.Contains(quoted, "\x00") {
					return "", false, fmt.Errorf("the value of %s has a NUL byte", key)
				}
				return quoted, true, nil
			}
		}
		text = rest
	}
	return "", false, nil
}
