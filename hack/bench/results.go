package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
)

// results are what a run writes.
type results struct {
	Commit string `json:"commit"`
	Engine string `json:"engine"`
	CPUs   int    `json:"cpus"`
	Quick  bool   `json:"quick,omitempty"`
	Rows   []row  `json:"rows"`
}

func readResults(path string) (r results, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (r results) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

// print writes the table; with an older one, what ours was then.
func (r results) print(older results) error {
	fmt.Printf("%s, engine %s, %d CPUs\n", r.Commit, r.Engine, r.CPUs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "WHAT\tCRISHIM\tPEER\tRATIO\tSPREAD\tTARGET\tMET\tPEER IS")
	if older.Rows != nil {
		fmt.Fprint(w, "\tBEFORE\tNOW/BEFORE")
	}
	fmt.Fprintln(w)
	quoted := false
	for _, row := range r.Rows {
		quoted = quoted || row.Quoted
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", row.What, row.format(row.Ours.Median), row.peerText(), row.ratioText(), row.spread(), row.targetText(), row.verdict(), row.PeerName)
		if older.Rows != nil {
			fmt.Fprintf(w, "\t%s", row.before(older))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if quoted {
		fmt.Println("* not measured here: a figure of another run (docs/performance.md); name the program by CRISHIM_BENCH_CRICTL or CRISHIM_BENCH_CRI_DOCKERD to measure it")
	}
	return nil
}

func (r row) format(v float64) string { return fmt.Sprintf("%.4g %s", v, r.Unit) }

func (r row) peerText() string {
	switch {
	case r.Quoted:
		return r.format(r.Peer.Median) + " *"
	case r.Peer.N > 0:
		return r.format(r.Peer.Median)
	}
	return "-"
}

func (r row) ratioText() string {
	if r.Ratio.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Ratio.Median)
}

// spread is that of the ratios, or of ours where there is none.
func (r row) spread() string {
	switch {
	case r.Ratio.N > 1:
		return fmt.Sprintf("%.2f..%.2f", r.Ratio.Low, r.Ratio.Top)
	case r.Ours.N > 1:
		return fmt.Sprintf("%.3g..%.3g %s", r.Ours.Low, r.Ours.Top, r.Unit)
	}
	return "-"
}

func (r row) before(older results) string {
	for _, o := range older.Rows {
		if o.What == r.What && o.PeerName == r.PeerName && o.Unit == r.Unit && o.Ours.Median != 0 {
			return fmt.Sprintf("%s\t%.2f", o.format(o.Ours.Median), r.Ours.Median/o.Ours.Median)
		}
	}
	return "-\t-"
}
