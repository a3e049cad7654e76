package convert

import (
	"fmt"
	"time"
)

// UnixNano turns the engine's text form of a time into nanoseconds since 1970.
// The engine writes the year 1 for "has not happened", and leaves the field
// empty in some answers; the CRI writes 0 for both.
func UnixNano(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("engine time %q: %w", text, err)
	}
	if t.Year() < 1970 {
		return 0, nil
	}
	return t.UnixNano(), nil
}
