package kuberuntime

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// logText is the text of one line of a log file in the CRI's form (time stream tag text)
// or in that of Docker's json-file.
func logText(line []byte) (string, bool) {
	if bytes.HasPrefix(line, []byte("{")) {
		var entry struct {
			Log    *string `json:"log"`
			Stream string  `json:"stream"`
		}
		if json.Unmarshal(line, &entry) != nil || entry.Log == nil {
			return "", false
		}
		return strings.TrimSuffix(*entry.Log, "\n"), true
	}
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) != 4 {
		return "", false
	}
	if _, err := time.Parse(time.RFC3339Nano, string(fields[0])); err != nil {
		return "", false
	}
	return string(fields[3]), true
}
