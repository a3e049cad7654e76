package output

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
)

// shortLength is how much of an id crictl's tables show.
const shortLength = 13

// shortID cuts an id, of an image or anything else, for a table.
func shortID(id string, o Options) string {
	if o.NoTrunc {
		return id
	}
	id = strings.TrimPrefix(id, "sha256:")
	if len(id) > shortLength {
		return id[:shortLength]
	}
	return id
}

// age says how long before now nanos (since 1970) was, as docker and crictl do.
func age(nanos int64, o Options) string {
	if nanos <= 0 {
		return "-"
	}
	d := o.Now.Sub(time.Unix(0, nanos))
	if d < 0 {
		return "in the future"
	}
	return units.HumanDuration(d) + " ago"
}

// size shows bytes in decimal units, as crictl does.
func size(bytes uint64) string { return units.HumanSizeWithPrecision(float64(bytes), 3) }

// orUnknown is what crictl shows where a label is missing.
func orUnknown(s string) string { return cmp.Or(s, "unknown") }

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// enumWord turns CONTAINER_RUNNING or SANDBOX_NOTREADY into Running, NotReady.
func enumWord(s string) string {
	word := s[strings.IndexByte(s, '_')+1:]
	switch word {
	case "":
		return ""
	case "NOTREADY":
		return "NotReady"
	}
	return word[:1] + strings.ToLower(word[1:])
}
