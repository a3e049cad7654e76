package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"
)

//go:embed page.html
var pageText string

//go:embed page.css
var style string

// pageTemplate escapes all that it is given. It is parsed when it is first used: no other command needs it.
var pageTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(pageText)) })

// Limits of the page, which a browser should still open.
const (
	shownBytes    = 64 << 10 // of one file
	pageBytes     = 6 << 20  // of all files
	shownRows     = 60       // of the timeline and of plots
	shownRemovals = 1000
)

// page is what the template is given.
type page struct {
	Title, At, StyleHash string
	Style                template.CSS
	Removed              int
	Sections             []section
	Bottom               int // of the timeline
}

type section struct {
	ID, Name, Text string
	Failed         []Result
	Timeline       *timeline
	Plots          []plot
	Tables         []shownTable
	Files          []shownFile
	Links          []string
	Results        []Result
	Removals       []Removal
}

type shownTable struct {
	*table
	Cells [][]cell
}

type cell struct{ Text, Tone string }

type shownFile struct {
	Name, Size, Text string
	Open             bool
}

// page makes index.html.
func (b *Bundle) page() ([]byte, error) {
	hash := sha256.Sum256([]byte(style))
	p := &page{
		Title: b.o.Title, At: b.at.Format(time.RFC3339), Style: template.CSS(style), //nolint:gosec // our own
		StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(hash[:]),
	}
	for _, r := range b.Removals {
		p.Removed += r.Count
	}
	incomplete := slices.DeleteFunc(slices.Clone(b.Results), func(r Result) bool { return r.Error == "" && len(r.Notes) == 0 })
	add := func(s section) {
		s.ID = strings.ToLower(strings.ReplaceAll(s.Name, " ", "-"))
		p.Sections = append(p.Sections, s)
	}
	add(section{Name: "Overview", Tables: b.tablesOf("why", "endpoints", "doctor"), Files: b.shown(new(int), "version"), Failed: incomplete})
	if lives := b.timeline(); lives != nil {
		p.Bottom = lives.Height
		add(section{Name: "Timeline", Timeline: lives})
	}
	add(section{Name: "Pods and containers", Tables: b.tablesOf("pods", "containers"), Links: b.links("inspect pods", "inspect containers")})
	add(section{Name: "Use of resources", Plots: b.plots(), Tables: b.tablesOf("stats")})
	add(section{Name: "Images", Tables: b.tablesOf("images"), Links: b.links("inspect images")})
	room := 0
	for _, s := range sections {
		if files := b.shown(&room, s.parts...); len(files) > 0 {
			add(section{Name: s.name, Tables: b.tablesOf(s.tables...), Files: files})
		}
	}
	add(section{Name: "Parts", Results: b.Results})
	s := section{Name: "Removed", Removals: b.Removals[:min(len(b.Removals), shownRemovals)]}
	switch more := len(b.Removals) - shownRemovals; {
	case len(b.Removals) == 0:
		s.Text = "Nothing was recognised as a secret."
	case more > 0:
		s.Text = fmt.Sprintf("%d places more are in removed.json.", more)
	}
	add(s)
	var out bytes.Buffer
	err := pageTemplate().Execute(&out, p)
	return out.Bytes(), err
}

// sections are those of files, with the parts that the files are of.
var sections = []struct {
	name   string
	parts  []string
	tables []string
}{
	{"Logs", []string{"logs"}, nil},
	{"Events", []string{"events", "why"}, []string{"events"}},
	{"Runtime", []string{"info", "pod stats"}, nil},
	{"Configuration", []string{"configuration", "CNI"}, nil},
	{"Host", []string{"kernel", "cgroup", "mounts", "network"}, nil},
	{"Journal", []string{"journal"}, nil},
}

func (b *Bundle) tablesOf(parts ...string) (found []shownTable) {
	for _, t := range b.tables {
		if !slices.Contains(parts, t.part) {
			continue
		}
		shown := shownTable{table: t}
		for _, row := range t.Rows {
			cells := make([]cell, len(row.Cells))
			for i, text := range row.Cells {
				cells[i].Text = text
				if i < len(row.Tones) {
					cells[i].Tone = row.Tones[i]
				}
			}
			shown.Cells = append(shown.Cells, cells)
		}
		found = append(found, shown)
	}
	return found
}

// shown are the files of parts with as much of their text as there is room for: of a log its end.
func (b *Bundle) shown(used *int, parts ...string) (found []shownFile) {
	for _, f := range b.files {
		if !slices.Contains(parts, f.part) {
			continue
		}
		bytes, err := f.bytes()
		if err != nil || len(bytes) == 0 {
			continue
		}
		text := string(bytes)
		one := shownFile{Name: f.name, Size: units.HumanSizeWithPrecision(float64(len(text)), 3), Open: f.part == "version"}
		if cut := len(text) - shownBytes; cut > 0 {
			if f.document == nil && f.form == prose {
				text = text[cut:]
				one.Size += ", the end of it"
			} else {
				text = text[:shownBytes]
				one.Size += ", the beginning of it"
			}
		}
		if f.shown && *used+len(text) <= pageBytes {
			one.Text = strings.ToValidUTF8(text, "")
			*used += len(text)
		}
		found = append(found, one)
	}
	return found
}

func (b *Bundle) links(parts ...string) (found []string) {
	for _, f := range b.files {
		if slices.Contains(parts, f.part) {
			found = append(found, f.name)
		}
	}
	return found
}

// timeline is when containers ran, in coordinates of the picture.
type timeline struct {
	Height int
	Ticks  []tick
	Rows   []timelineRow
	More   string
}

type tick struct {
	X            float64
	Text, Anchor string
}

type timelineRow struct {
	Name  string
	TextY int
	Bars  []bar
}

type bar struct {
	X, Width   float64
	Y          int
	Tone, Text string
}

// Places in the picture of the timeline.
const (
	timeLeft, timeRight = 360.0, 1190.0
	rowHeight, rowsTop  = 20, 24
	shownName           = 52
)

// window is the time that the timeline shows: what began within a day is seen from its beginning.
func (b *Bundle) window() time.Time {
	from := b.at.Add(-10 * time.Minute)
	for _, s := range b.spans {
		if s.From.Before(from) && b.at.Sub(s.From) < 24*time.Hour {
			from = s.From
		}
	}
	return from
}

func (b *Bundle) timeline() *timeline {
	if len(b.spans) == 0 {
		return nil
	}
	from := b.window()
	scale := (timeRight - timeLeft) / float64(max(b.at.Sub(from), time.Second))
	place := func(t time.Time) float64 {
		return math.Round(10*min(max(timeLeft+scale*float64(t.Sub(from)), timeLeft), timeRight)) / 10
	}
	t := &timeline{}
	rows := map[string]*timelineRow{}
	worst := map[string]bool{}
	var names []string
	for _, s := range b.spans {
		if rows[s.Name] == nil {
			name := s.Name
			if runes := []rune(name); len(runes) > shownName {
				name = "…" + string(runes[len(runes)-shownName+1:])
			}
			rows[s.Name] = &timelineRow{Name: name}
			names = append(names, s.Name)
		}
		to := s.To
		if to.IsZero() || to.Before(s.From) {
			to = b.at
		}
		x := place(s.From)
		text := fmt.Sprintf("%s: %s, from %s", s.Name, s.Text, s.From.UTC().Format(time.RFC3339))
		if !s.To.IsZero() {
			text += " to " + s.To.UTC().Format(time.RFC3339)
		}
		rows[s.Name].Bars = append(rows[s.Name].Bars, bar{X: x, Width: max(place(to)-x, 2), Tone: s.Tone, Text: text})
		worst[s.Name] = worst[s.Name] || s.Tone != "good"
	}
	slices.SortStableFunc(names, func(a, b string) int {
		rank := map[bool]int{true: 0, false: 1}
		return cmp.Compare(rank[worst[a]], rank[worst[b]])
	})
	if more := len(names) - shownRows; more > 0 {
		t.More = fmt.Sprintf("%d containers more are not drawn.", more)
		names = names[:shownRows]
	}
	for i, name := range names {
		row := rows[name]
		row.TextY = rowsTop + i*rowHeight + 11
		for j := range row.Bars {
			row.Bars[j].Y = rowsTop + i*rowHeight + 1
		}
		t.Rows = append(t.Rows, *row)
	}
	t.Height = rowsTop + len(names)*rowHeight + 4
	layout := "15:04:05"
	if b.at.Sub(from) > 12*time.Hour {
		layout = "Jan 2 15:04"
	}
	for i := range 5 {
		at := from.Add(b.at.Sub(from) * time.Duration(i) / 4)
		anchor := map[int]string{0: "start", 4: "end"}[i]
		t.Ticks = append(t.Ticks, tick{place(at), at.UTC().Format(layout), cmp.Or(anchor, "middle")})
	}
	return t
}

// plot has a line for the CPU and one for the memory of a container.
type plot struct {
	Name  string
	Lines []plotLine
}

type plotLine struct {
	Text, Points string
	LimitY       float64 // 0: none
}

func (b *Bundle) plots() (all []plot) {
	series := slices.Clone(b.series)
	last := func(values []float64) float64 {
		if len(values) == 0 {
			return 0
		}
		return values[len(values)-1]
	}
	slices.SortStableFunc(series, func(a, b *Series) int { return cmp.Compare(last(b.Memory), last(a.Memory)) })
	for _, s := range series[:min(len(series), shownRows)] {
		memory := units.HumanSizeWithPrecision(last(s.Memory), 3)
		if s.Limit > 0 {
			memory += fmt.Sprintf(" of %s (%.0f %%)", units.HumanSizeWithPrecision(s.Limit, 3), 100*last(s.Memory)/s.Limit)
		}
		all = append(all, plot{s.Name, []plotLine{line(fmt.Sprintf("%.1f %%", last(s.CPU)), s.CPU, 0), line(memory, s.Memory, s.Limit)}})
	}
	return all
}

// line scales values to a picture of 200 by 40.
func line(text string, values []float64, limit float64) plotLine {
	const width, height, margin = 200.0, 40.0, 3.0
	top := max(limit, 1e-9)
	for _, v := range values {
		top = max(top, v)
	}
	y := func(v float64) float64 { return math.Round(10*(height-margin-(height-2*margin)*v/top)) / 10 }
	var points []string
	for i, v := range values {
		x := width
		if len(values) > 1 {
			x = math.Round(10*width*float64(i)/float64(len(values)-1)) / 10
		}
		points = append(points, fmt.Sprintf("%g,%g", x, y(v)))
	}
	one := plotLine{Text: text, Points: strings.Join(points, " ")}
	if limit > 0 {
		one.LimitY = y(limit)
	}
	return one
}
