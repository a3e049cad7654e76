package logfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// The streams of an entry.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Entry is what a container wrote at once: a line with its newline, or a part
// of one without.
type Entry struct {
	Time   time.Time
	Stream string
	Text   []byte
}

// Partial says that the line goes on in the stream's next entry.
func (e Entry) Partial() bool { return !bytes.HasSuffix(e.Text, []byte("\n")) }

// parse reads one line of a log file in either format.
func parse(line []byte) (Entry, error) {
	if bytes.HasPrefix(line, []byte("{")) {
		return parseJSON(line)
	}
	return parseCRI(line)
}

func parseJSON(line []byte) (Entry, error) {
	var record struct {
		Log    string    `json:"log"`
		Stream string    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(line, &record); err != nil {
		return Entry{}, fmt.Errorf("malformed log line: %w", err)
	}
	return Entry{Time: record.Time, Stream: record.Stream, Text: []byte(record.Log)}, nil
}

// parseCRI reads "TIME STREAM TAGS TEXT"; the tag P marks a part of a line.
func parseCRI(line []byte) (Entry, error) {
	stamp, rest, ok1 := bytes.Cut(line, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, _ := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || (string(stream) != Stdout && string(stream) != Stderr) {
		return Entry{}, fmt.Errorf("malformed log line %q", shortened(line))
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, fmt.Errorf("malformed log line %q", shortened(line))
	}
	first, _, _ := bytes.Cut(tags, []byte(":"))
	text = bytes.Clone(text)
	if string(first) != "P" {
		text = append(text, '\n')
	}
	return Entry{Time: at, Stream: string(stream), Text: text}, nil
}

func shortened(line []byte) []byte { return line[:min(len(line), 60)] }
