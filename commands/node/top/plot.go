package top

import (
	"math"
	"strings"
)

// Plots are drawn here because the only library, ntcharts, depends on version 1 of bubbletea and lipgloss. It would add a
// second copy of each to save this file.

// bars are the eighths of a cell.
const bars = " ▁▂▃▄▅▆▇█"

// perCell returns how many samples a cell of a plot stands for: more than one if there are more samples than cells.
func perCell(h *history, width int) int {
	if h == nil || width < 1 {
		return 1
	}
	return max((len(h.ring)+width-1)/width, 1)
}

// plot draws non-negative values as bars, the newest at the right edge, and returns the maximum. Each cell keeps its
// samples from one drawing to the next, so that a plot moves to the left without flicker.
func plot(h *history, value func(point) float32, width, height int) (rows []string, top float64) {
	each := perCell(h, width)
	cells := make([]float64, max(width, 0))
	h.each(func(number int, p point) {
		if at := width - 1 - ((h.taken-1)/each - number/each); at >= 0 {
			cells[at] = max(cells[at], float64(value(p)))
			top = max(top, cells[at])
		}
	})
	steps := []rune(bars)
	full := len(steps) - 1
	for row := height - 1; row >= 0; row-- {
		var line strings.Builder
		for _, v := range cells {
			eighths := 0
			if top > 0 && v > 0 {
				eighths = int(math.Ceil(v / top * float64(full*height)))
			}
			line.WriteRune(steps[min(max(eighths-row*full, 0), full)])
		}
		rows = append(rows, line.String())
	}
	return rows, top
}
